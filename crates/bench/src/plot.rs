//! Charts: one SVG per case, with one bar per contender and the triad's rate as a line; and panels of grouped bars for
//! the papers' figures.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;

use crate::record::Line;

/// Writes `DIR/op-case-type.svg` for every case in `lines`.
pub fn bars(dir: &Path, lines: &[Line]) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let side = |l: &Line| l.more.solve.as_ref().map(|s| s.triangle.clone());
    let timed = lines.iter().filter(|l| l.contender != "machine");
    let mut keys: Vec<_> = timed.map(|l| (l.case.as_str(), l.element, side(l))).collect();
    keys.dedup();
    for (case, element, triangle) in keys {
        let belongs = |l: &&Line| l.contender == "machine" || side(l) == triangle;
        let here: Vec<&Line> =
            lines.iter().filter(|l| l.case == case && l.element == element).filter(belongs).collect();
        let case = triangle.map_or(case.to_owned(), |triangle| format!("{case} {triangle}"));
        let bars: Vec<&&Line> = here.iter().filter(|l| l.contender != "machine").collect();
        let triad = here.iter().find(|l| l.noun == "triad").map(|l| l.gbs);
        let safe: String = case.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
        let path = dir.join(format!("{}-{safe}-{element}.svg", lines[0].op));
        draw(&path, &format!("{} {case} {element}", lines[0].op), &bars, triad)
            .map_err(|e| anyhow!("cannot draw {}: {e}", path.display()))?;
    }
    Ok(())
}

/// Values of one colour, one per group.
#[derive(Clone, Debug)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The values by group; `None` if there is none.
    pub values: Vec<Option<f64>>,
    /// Texts above the bars, by group.
    pub notes: Vec<String>,
}

/// Grouped bars.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The title.
    pub title: String,
    /// The vertical axis.
    pub unit: &'static str,
    /// The names below the bars.
    pub groups: Vec<String>,
    /// The bars of each group, in order.
    pub series: Vec<Series>,
    /// A range behind the bars, with its name in the legend.
    pub range: Option<(f64, f64, &'static str)>,
}

/// Writes panels into one SVG, two per row, all with the colours of the first.
pub fn panels(path: &Path, panels: &[Panel]) -> Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    draw_panels(path, panels).map_err(|e| anyhow!("cannot draw {}: {e}", path.display()))
}

pub(crate) const COLOURS: [RGBColor; 12] = [
    RGBColor(31, 119, 180),
    RGBColor(255, 127, 14),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(214, 39, 40),
    RGBColor(140, 86, 75),
    RGBColor(127, 127, 127),
    RGBColor(188, 189, 34),
    RGBColor(23, 190, 207),
    RGBColor(227, 119, 194),
    RGBColor(0, 90, 50),
    RGBColor(120, 60, 0),
];
const WIDTH: u32 = 640;
const HEIGHT: u32 = 360;
/// The strip below all panels that explains the colours: names per line, height of a line, maximum width of a letter,
/// and the space beside a name.
const NAMES: usize = 3;
const STRIP: u32 = 22;
const LETTER: usize = 8;
const SQUARE: usize = 44;
const SHADE: RGBColor = RGBColor(230, 230, 230);

/// Names with their colours, those of the series first.
fn legend(panels: &[Panel]) -> Vec<(&str, RGBColor)> {
    let series = panels.first().map_or(&[][..], |panel| &panel.series);
    let of_series = series.iter().enumerate().map(|(k, s)| (s.name.as_str(), COLOURS[k % COLOURS.len()]));
    let range = panels.iter().find_map(|panel| panel.range).map(|(_, _, name)| (name, SHADE));
    of_series.chain(range).collect()
}

/// The number of names that fit into a line of this width.
fn names_a_line(names: &[(&str, RGBColor)], width: u32) -> usize {
    let longest = names.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    (width as usize / (LETTER * longest + SQUARE)).clamp(1, NAMES)
}

fn draw_panels(path: &Path, panels: &[Panel]) -> Result<(), Box<dyn std::error::Error>> {
    let columns = panels.len().clamp(1, 2) as u32;
    let rows = panels.len().div_ceil(2) as u32;
    let names = legend(panels);
    let across = names_a_line(&names, WIDTH * columns);
    let strip = STRIP * names.len().div_ceil(across) as u32 + 8;
    let root = SVGBackend::new(path, (WIDTH * columns, HEIGHT * rows + strip)).into_drawing_area();
    root.fill(&WHITE)?;
    let (above, below) = root.split_vertically(HEIGHT * rows);
    for (panel, area) in panels.iter().zip(above.split_evenly((rows as usize, columns as usize))) {
        draw_panel(panel, &area)?;
    }
    for (k, (name, colour)) in names.iter().enumerate() {
        let at = (24 + ((k % across) * (WIDTH * columns) as usize / across) as i32, (k / across) as i32 * STRIP as i32);
        let square = [at, (at.0 + 14, at.1 + 14)];
        below.draw(&Rectangle::new(square, colour.filled()))?;
        below.draw(&Text::new((*name).to_owned(), (at.0 + 20, at.1 + 1), ("sans-serif", 14)))?;
    }
    root.present()?;
    Ok(())
}

/// The end of a panel's axis. If a range is far above the bars, only its lower end is in sight, so that the bars stay
/// visible.
fn top(panel: &Panel) -> f64 {
    let bars = panel.series.iter().flat_map(|s| s.values.iter().flatten().copied()).fold(f64::MIN_POSITIVE, f64::max);
    let range = panel.range.map_or(0.0, |(low, high, _)| if high <= 4.0 * bars { high } else { 1.1 * low });
    1.15 * bars.max(range)
}

fn draw_panel<D: DrawingBackend>(
    panel: &Panel,
    area: &DrawingArea<D, plotters::coord::Shift>,
) -> Result<(), Box<dyn std::error::Error>>
where
    D::ErrorType: 'static,
{
    let top = top(panel);
    let groups = panel.groups.len();
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..groups as f64, 0.0..top)?;
    // Labels would stand between the ticks of a continuous axis, so they are drawn below.
    chart.configure_mesh().disable_x_mesh().x_labels(0).max_light_lines(4).y_desc(panel.unit).draw()?;
    if let Some((low, high, _)) = panel.range {
        // Lines of the mesh show through, so the shade is blended with white here.
        let shade = RGBColor(200, 200, 200).mix(0.45).filled();
        chart.draw_series([Rectangle::new([(0.0, low), (groups as f64, high.min(top))], shade)])?;
    }
    let width = 0.84 / panel.series.len().max(1) as f64;
    for (k, series) in panel.series.iter().enumerate() {
        let colour = COLOURS[k % COLOURS.len()];
        for (g, value) in series.values.iter().enumerate() {
            let Some(value) = *value else { continue };
            let left = g as f64 + 0.08 + k as f64 * width;
            chart.draw_series([Rectangle::new([(left, 0.0), (left + 0.92 * width, value)], colour.filled())])?;
            if let Some(note) = series.notes.get(g).filter(|note| !note.is_empty()) {
                chart.draw_series([
                    EmptyElement::at((left, value)) + Text::new(note.clone(), (0, -14), ("sans-serif", 12))
                ])?;
            }
        }
    }
    let plane = chart.plotting_area();
    for (g, name) in panel.groups.iter().enumerate() {
        let (x, y) = plane.map_coordinate(&(g as f64 + 0.5, 0.0));
        let base = area.get_base_pixel();
        let style = ("sans-serif", 13).into_text_style(area).pos(plotters::style::text_anchor::Pos::new(
            plotters::style::text_anchor::HPos::Center,
            plotters::style::text_anchor::VPos::Top,
        ));
        area.draw(&Text::new(name.clone(), (x - base.0, y - base.1 + 6), style))?;
    }
    Ok(())
}

fn draw(path: &Path, title: &str, bars: &[&&Line], triad: Option<f64>) -> Result<(), Box<dyn std::error::Error>> {
    let height = 90 + 26 * bars.len() as u32;
    let root = SVGBackend::new(path, (860, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let top = bars.iter().map(|l| l.gbs).chain(triad).fold(1.0, f64::max) * 1.08;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(34)
        .y_label_area_size(170)
        .build_cartesian_2d(0.0..top, (0..bars.len()).into_segmented())?;
    let label = |v: &SegmentValue<usize>| match v {
        SegmentValue::CenterOf(k) => bars.get(*k).map_or(String::new(), |l| format!("{} ({})", l.noun, l.contender)),
        _ => String::new(),
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .x_desc("GB/s by the traffic model")
        .y_labels(bars.len())
        .y_label_formatter(&label)
        .draw()?;
    chart.draw_series(bars.iter().enumerate().map(|(k, l)| {
        let colour = if l.contender == "spandrel" { RGBColor(31, 119, 180) } else { RGBColor(180, 180, 180) };
        let mut bar =
            Rectangle::new([(0.0, SegmentValue::Exact(k)), (l.gbs, SegmentValue::Exact(k + 1))], colour.filled());
        bar.set_margin(3, 3, 0, 0);
        bar
    }))?;
    if let Some(triad) = triad {
        chart
            .draw_series(LineSeries::new(
                [(triad, SegmentValue::Exact(0)), (triad, SegmentValue::Exact(bars.len()))],
                RED.stroke_width(2),
            ))?
            .label("triad")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], RED.stroke_width(2)));
        chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
    }
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_legend_do_not_touch() {
        let named = |names: &[&str], range: Option<(f64, f64, &'static str)>| Panel {
            title: String::new(),
            unit: "GB/s",
            groups: Vec::new(),
            series: names.iter().map(|&n| Series { name: n.into(), values: Vec::new(), notes: Vec::new() }).collect(),
            range,
        };
        let panels = [named(&["baseline", "multi-stage without fetching ahead", "all"], None)];
        let names = legend(&panels);
        assert_eq!((names.len(), names_a_line(&names, WIDTH), names_a_line(&names, 2 * WIDTH)), (3, 2, 3));
        let published = "Algorithm 2 on a V100, as published: 40.1 to 225.2";
        let panels = [named(&["sweep"], None), named(&["sweep"], Some((40.1, 225.2, published)))];
        assert_eq!(legend(&panels), [("sweep", COLOURS[0]), (published, SHADE)]);
        assert_eq!(names_a_line(&legend(&panels), 2 * WIDTH), 2);
        assert_eq!(names_a_line(&[], WIDTH), NAMES);
    }

    #[test]
    fn bars_and_what_was_published_are_both_in_sight() {
        let of = |bar: f64| Panel {
            title: String::new(),
            unit: "GB/s",
            groups: vec!["64".into()],
            series: vec![Series { name: "sweep".into(), values: vec![None, Some(bar)], notes: Vec::new() }],
            range: Some((40.0, 200.0, "published")),
        };
        assert_eq!([of(1000.0), of(100.0), of(20.0)].map(|panel| top(&panel).round()), [1150.0, 230.0, 51.0]);
    }
}
