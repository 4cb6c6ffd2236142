//! The bar chart of weak scaling on several GPUs, as an SVG that can be read on light and dark pages.

use std::collections::HashMap;

use super::chart::STYLE;
use super::number::digits;
use super::record::{Line, Records};

/// The path of the picture.
pub(crate) const PICTURE: &str = "docs/pictures/weak-scaling.svg";

const FILES: [&str; 2] = ["record/gpus-cg.jsonl", "record/gpus-multigrid.jsonl"];

/// A case on one GPU, and with as many unknowns on each of several.
struct Group<'a> {
    one: &'a Line,
    more: Vec<&'a Line>,
}

fn gpus(line: &Line) -> f64 {
    line.number("gpus").unwrap_or(0.0)
}

/// The cases that ran with equally many unknowns per GPU and iterations on one GPU and on several, whose devices read
/// each other's memory. Of several such runs of a case, the last counts.
fn groups(records: &Records) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let each = |line: &Line| line.number("n").unwrap_or(0.0) / gpus(line).max(1.0);
    let kind = |line: &Line| line.text("case").split_once(':').map(|(kind, _)| kind.to_owned());
    for line in FILES.iter().flat_map(|file| records.of(file)) {
        if gpus(line) == 1.0 {
            groups.push(Group { one: line, more: Vec::new() });
        } else if line.text("through") == "from device to device" && line.number("share_of_ideal").is_some() {
            let same = |group: &&mut Group<'_>| {
                let one = group.one;
                one.header == line.header
                    && kind(one) == kind(line)
                    && each(one) == each(line)
                    && one.text("precond") == line.text("precond")
                    && one.number("iterations") == line.number("iterations")
            };
            if let Some(group) = groups.iter_mut().find(same) {
                group.more.push(line);
            }
        }
    }
    groups.retain(|group| !group.more.is_empty());
    let of = |group: &Group<'_>| (group.one.text("case").to_owned(), group.one.text("precond").to_owned());
    let last: HashMap<_, usize> = groups.iter().enumerate().map(|(at, group)| (of(group), at)).collect();
    groups.into_iter().enumerate().filter(|(at, group)| last[&of(group)] == *at).map(|(_, group)| group).collect()
}

/// `7 points, 256³ per GPU: CG + jacobi`.
fn name(one: &Line) -> String {
    let points = if one.text("case").starts_with("d3n27:") { 27 } else { 7 };
    let side = one.text("case").split_once(':').map_or("", |(_, side)| side);
    format!("{points} points, {side}³ per GPU: CG + {}", one.text("precond"))
}

/// Sizes in pixels.
const WIDTH: f64 = 760.0;
const LEFT: f64 = 335.0;
const BAR: f64 = 13.0;
const TOP: f64 = 58.0;
const GAP: f64 = 12.0;

/// The picture. The bar of one GPU has the same length in each group; a longer one is slower.
pub(crate) fn picture(records: &Records) -> String {
    let groups = groups(records);
    let bars: usize = groups.iter().map(|group| 1 + group.more.len()).sum();
    let height = TOP + bars as f64 * (BAR + 2.0) + groups.len() as f64 * GAP + 8.0;
    // The longest bar leaves room for its text.
    let ratio = |line: &&Line| line.number("share_of_ideal").map_or(1.0, f64::recip);
    let longest = groups.iter().flat_map(|group| &group.more).map(ratio).fold(1.0, f64::max);
    let full = (WIDTH - LEFT - 160.0) / longest;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
         aria-label=\"Time of an iteration on one GPU and on several, with equally many unknowns on each\">\n{STYLE}\
         <rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"6\"/>\n\
         <text x=\"16\" y=\"28\" font-weight=\"bold\">Time of an iteration, with equally many unknowns on each GPU (equal is ideal)</text>\n",
        WIDTH - 1.0,
        height - 1.0
    );
    let mut y = TOP;
    for Group { one, more } in groups {
        let Some(base) = one.number("iteration_ms") else { continue };
        out +=
            &format!("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", LEFT - 12.0, y + BAR - 2.0, name(one));
        for line in [one].into_iter().chain(more) {
            let ms = line.number("iteration_ms").unwrap_or(0.0);
            let width = full * ms / base;
            let share =
                line.number("share_of_ideal").map_or(String::new(), |share| format!(", {:.0} %", 100.0 * share));
            let (count, class) = (gpus(line), if gpus(line) == 1.0 { "theirs" } else { "ours" });
            let unit = if count == 1.0 { "GPU" } else { "GPUs" };
            out += &format!(
                "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\"/>\
                 <text x=\"{:.1}\" y=\"{}\" font-size=\"12\">{count} {unit}: {} ms{share}</text>\n",
                LEFT + width + 6.0,
                y + BAR - 2.0,
                digits(ms)
            );
            y += BAR + 2.0;
        }
        y += GAP;
    }
    out + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_shares_of_a_case_are_drawn_together() {
        let line = |case: &str, gpus: usize, n: usize, ms: f64, through: &str| {
            format!(
                "{{\"case\":\"{case}\",\"gpus\":{gpus},\"n\":{n},\"precond\":\"jacobi\",\"iterations\":9,\"iteration_ms\":{ms:?},\
                 \"through\":\"{through}\",\"share_of_ideal\":{:?}}}",
                2.0 / ms
            )
        };
        let lines = [
            line("poisson3d:8", 1, 512, 2.0, ""),
            line("poisson3d:8x8x16", 2, 1024, 2.5, "from device to device"),
            line("poisson3d:8x8x16", 2, 1024, 9.5, "through the host"),
            // Not the same share, and another kind.
            line("poisson3d:8x8x18", 2, 1152, 7.5, "from device to device"),
            line("d3n27:8x8x16", 2, 1024, 8.5, "from device to device"),
        ];
        let mut records = Records::default();
        records.add(FILES[0], &lines.join("\n")).expect("lines");
        let made = picture(&records);
        assert!(made.contains("7 points, 8³ per GPU: CG + jacobi"), "{made}");
        assert!(made.contains("1 GPU: 2.00 ms") && made.contains("2 GPUs: 2.50 ms, 80 %"), "{made}");
        assert!(["7.50", "8.50", "9.50"].iter().all(|other| !made.contains(other)), "{made}");
        // A later run of the case.
        let later = [
            "{\"header\":true,\"machine\":\"m\"}".to_owned(),
            line("poisson3d:8", 1, 512, 3.0, ""),
            line("poisson3d:8x8x16", 2, 1024, 3.5, "from device to device"),
        ];
        records.add(FILES[0], &[&lines[..], &later].concat().join("\n")).expect("lines");
        let made = picture(&records);
        assert!(made.contains("1 GPU: 3.00 ms") && made.contains("2 GPUs: 3.50 ms"), "{made}");
        assert!(!made.contains("2.00 ms") && !made.contains("2.50 ms"), "{made}");
    }
}
