//! README's bar chart: times of whole solves beside the peer's, as an SVG that can be read on light and dark pages.

use super::number::digits;
use super::record::Records;
use super::solves::{SOLVES, Solve, solves};

/// The path of the picture.
pub(crate) const PICTURE: &str = "docs/pictures/solve-time.svg";

/// The colours of a picture on a light and a dark page.
pub(super) const STYLE: &str = "\
    <style>\n\
    svg { font: 13px system-ui, 'DejaVu Sans', sans-serif; }\n\
    .page { fill: #ffffff; stroke: #d0d7de; } text { fill: #1f2328; } .quiet { fill: #59636e; }\n\
    .ours { fill: #1f6feb; } .theirs { fill: #afb8c1; }\n\
    @media (prefers-color-scheme: dark) {\n\
    .page { fill: #0d1117; stroke: #30363d; } text { fill: #e6edf3; } .quiet { fill: #9198a1; }\n\
    .ours { fill: #58a6ff; } .theirs { fill: #57606a; }\n\
    }\n\
    </style>\n";

/// Two bars: a whole solve with set-up, in ms.
struct Pair {
    name: String,
    ours: f64,
    theirs: f64,
}

/// `7-point stencil, 256³` for `d3n7:256`. Other cases keep their names.
fn matrix(case: &str) -> String {
    let stencil = case.strip_prefix("d3n").and_then(|rest| rest.split_once(':'));
    stencil.map_or(case.to_owned(), |(points, side)| format!("{points}-point stencil, {side}³"))
}

fn pair(solve: &Solve<'_>) -> Option<Pair> {
    let line = solve.ours;
    let method = match line.text("noun") {
        "cg" => "CG",
        "bicgstab" => "BiCGStab",
        other => other,
    };
    let preconditioner = match line.text("precond") {
        "ic0" => "IC(0)",
        "ilu0" => "ILU(0)",
        other => other,
    };
    let ours = line.number("ms")? + line.number("setup_ms")?;
    Some(Pair {
        name: format!("{}: {method} + {preconditioner}", matrix(line.text("case"))),
        ours,
        theirs: ours * line.number("ratio_with_setup")?,
    })
}

/// The largest grids, and the matrices from files with the lowest, the median and the highest ratio.
fn pairs(records: &Records) -> Vec<Pair> {
    let all = solves(records.of(SOLVES));
    let rows = |solve: &Solve<'_>| solve.ours.number("n").unwrap_or(0.0);
    let (grids, files): (Vec<&Solve<'_>>, Vec<&Solve<'_>>) =
        all.iter().partition(|solve| solve.ours.text("case").contains(':'));
    let largest = grids.iter().map(|solve| rows(solve)).fold(0.0, f64::max);
    let mut chosen: Vec<Pair> =
        grids.iter().filter(|solve| rows(solve) == largest).filter_map(|solve| pair(solve)).collect();
    let mut files: Vec<Pair> = files.iter().filter_map(|solve| pair(solve)).collect();
    files.sort_by(|a, b| (a.theirs / a.ours).total_cmp(&(b.theirs / b.ours)));
    let places = [("lowest", 0), ("median", files.len() / 2), ("highest", files.len().saturating_sub(1))];
    for (place, at) in places {
        if let Some(Pair { name, ours, theirs }) = files.get(at) {
            chosen.push(Pair { name: format!("{name} ({place} ratio)"), ours: *ours, theirs: *theirs });
        }
    }
    chosen
}

/// Sizes in pixels.
const WIDTH: f64 = 760.0;
const LEFT: f64 = 300.0;
const BAR: f64 = 13.0;
const ROW: f64 = 42.0;
const TOP: f64 = 74.0;

fn time(ms: f64) -> String {
    if ms < 1000.0 { format!("{} ms", digits(ms)) } else { format!("{} s", digits(ms / 1000.0)) }
}

/// The picture. The peer's bar has the same length in each row, and ours is in proportion.
pub(crate) fn picture(records: &Records) -> String {
    let pairs = pairs(records);
    let height = TOP + ROW * pairs.len() as f64 + 14.0;
    let full = WIDTH - LEFT - 120.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
         aria-label=\"Time of whole solves on an H200, Spandrel beside cuSPARSE and cuBLAS\">\n{STYLE}\
         <rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"6\"/>\n\
         <text x=\"16\" y=\"28\" font-weight=\"bold\">Time of a whole solve on one H200, set-up included (shorter is better)</text>\n\
         <rect class=\"ours\" x=\"16\" y=\"43\" width=\"12\" height=\"12\"/><text x=\"34\" y=\"54\">Spandrel</text>\n\
         <rect class=\"theirs\" x=\"112\" y=\"43\" width=\"12\" height=\"12\"/><text x=\"130\" y=\"54\">the same method with cuSPARSE and cuBLAS</text>\n",
        WIDTH - 1.0,
        height - 1.0
    );
    for (k, Pair { name, ours, theirs }) in pairs.iter().enumerate() {
        let y = TOP + ROW * k as f64;
        let longer = ours.max(*theirs);
        out += &format!("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{name}</text>\n", LEFT - 12.0, y + BAR + 5.0);
        for (class, ms, at) in [("ours", ours, y), ("theirs", theirs, y + BAR + 2.0)] {
            let width = full * ms / longer;
            let times =
                if class == "ours" { format!("{}, {} ×", time(*ms), digits(theirs / ours)) } else { time(*ms) };
            out += &format!(
                "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{at}\" width=\"{width:.1}\" height=\"{BAR}\"/>\
                 <text class=\"{}\" x=\"{:.1}\" y=\"{}\" font-size=\"12\">{times}</text>\n",
                if class == "ours" { "" } else { "quiet" },
                LEFT + width + 6.0,
                at + BAR - 2.0
            );
        }
    }
    out + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_grids_and_three_real_matrices_are_drawn() {
        let line = |case: &str, n: usize, ratio: f64| {
            format!(
                "{{\"op\":\"solve\",\"case\":\"{case}\",\"n\":{n},\"contender\":\"spandrel\",\"noun\":\"cg\",\"precond\":\"ic0\",\"precision\":\"f64\",\
                 \"status\":\"converged\",\"ms\":3.0,\"setup_ms\":1.0,\"ratio_with_setup\":{ratio:?}}}"
            )
        };
        let lines = [
            line("d3n7:8", 512, 5.0),
            line("d3n7:16", 4096, 4.0),
            line("a", 9, 2.0),
            line("b", 9, 0.5),
            line("c", 9, 8.0),
        ];
        let mut records = Records::default();
        records.add(SOLVES, &lines.join("\n")).expect("lines");
        let made = picture(&records);
        assert!(made.contains("7-point stencil, 16³: CG + IC(0)<") && !made.contains("8³"), "{made}");
        assert!(made.contains(">4.00 ms, 4.00 ×<") && made.contains(">16.0 ms<"), "{made}");
        assert!(made.contains("b: CG + IC(0) (lowest ratio)") && made.contains("a: CG + IC(0) (median ratio)"));
        // If we are slower, our bar is the longer one.
        assert!(made.contains(">4.00 ms, 0.500 ×<") && made.contains(">2.00 ms<"), "{made}");
    }
}
