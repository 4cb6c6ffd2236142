//! Curves over an axis of numbers or names, as in the papers' figures, as SVG and as a table.
//!
//! A name has one colour in all charts of a file. Published numbers are dashed, with hollow marks, in the colour of the
//! curve to compare with.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::plot::COLOURS;

/// The scale of an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// Linear; from zero on the vertical axis.
    Linear,
    /// Logarithmic; only positive values are drawn.
    Log,
    /// Points at 0, 1, ... have these names.
    Names(Vec<String>),
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The title with its unit.
    pub name: &'static str,
    /// The scale.
    pub scale: Scale,
}

/// Points of one colour.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The name in the legend.
    pub name: String,
    /// The points by ascending x.
    pub points: Vec<(f64, f64)>,
    /// For published numbers, the curve to compare with.
    pub published: Option<String>,
}

impl Curve {
    /// A curve measured here.
    pub fn measured(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, published: None }
    }

    /// A paper's numbers beside the curve called `like`.
    pub fn published(name: impl Into<String>, like: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, published: Some(like.into()) }
    }
}

/// Curves over the same axes.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The title above the chart.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis; never of names.
    pub y: Axis,
    /// The curves.
    pub curves: Vec<Curve>,
}

impl Chart {
    /// Whether nothing in it was measured here.
    pub fn is_empty(&self) -> bool {
        self.curves.iter().all(|c| c.published.is_some() || c.points.is_empty())
    }

    /// A table with one row per x and one column per curve.
    pub fn table(&self) -> String {
        let mut xs: Vec<f64> = self.curves.iter().flat_map(|c| c.points.iter().map(|p| p.0)).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let names: Vec<&str> = self.curves.iter().map(|c| c.name.as_str()).collect();
        let mut out =
            format!("| {} | {} |\n|---|{}\n", self.x.name, names.join(" | "), "---:|".repeat(self.curves.len()));
        for x in xs {
            let cell =
                |curve: &Curve| curve.points.iter().find(|p| p.0 == x).map_or("-".into(), |&(_, value)| digits(value));
            let name = match &self.x.scale {
                Scale::Names(names) => names.get(x as usize).cloned().unwrap_or_default(),
                _ if x == x.trunc() && x.abs() < 1e15 => format!("{x:.0}"),
                _ => tick(x),
            };
            out += &format!("| {name} | {} |\n", self.curves.iter().map(cell).collect::<Vec<_>>().join(" | "));
        }
        out
    }
}

/// A number with four significant digits.
pub fn digits(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e15 {
        return format!("{value:.0}");
    }
    match value.abs().log10().floor() as i32 {
        4..=8 => format!("{value:.0}"),
        power @ -4..=3 => format!("{value:.*}", (3 - power).max(0) as usize),
        _ => format!("{value:.2e}"),
    }
}

/// A number on an axis.
fn tick(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-3..1e5).contains(&size) {
        let text = format!("{value:.1e}");
        return text.replace(".0e", "e");
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

const WIDTH: u32 = 640;
const HEIGHT: u32 = 400;
/// The legend below all charts: names per line for each chart in a row, and the height of a line.
const NAMES: usize = 2;
const STRIP: u32 = 22;
/// A chart with more names than this, or with names that would touch each other, is as wide as two.
const MANY: usize = 8;
/// The average width of a letter in a point's name.
const LETTER: u32 = 7;
/// The part of a chart's width that the vertical axis and the margins take.
const BESIDE: u32 = 108;
/// The largest number of labels on an axis; on a logarithmic one.
const LABELS: usize = 11;
const POWERS: usize = 5;

/// Writes charts into one SVG, two per row, or one if points have many names.
///
/// # Errors
/// A folder that cannot be written.
pub fn draw(path: &Path, charts: &[Chart]) -> Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    draw_all(path, charts).map_err(|e| anyhow!("cannot draw {}: {e}", path.display()))
}

/// The legend: each name once, with its colour and whether it is published.
fn legend(charts: &[Chart]) -> Vec<(String, RGBColor, bool)> {
    let mut entries: Vec<(String, RGBColor, bool)> = Vec::new();
    let all = || charts.iter().flat_map(|chart| &chart.curves).filter(|curve| !curve.points.is_empty());
    for curve in all().filter(|curve| curve.published.is_none()) {
        if !entries.iter().any(|e| e.0 == curve.name) {
            entries.push((curve.name.clone(), COLOURS[entries.len() % COLOURS.len()], false));
        }
    }
    for curve in all() {
        let Some(like) = &curve.published else { continue };
        if !entries.iter().any(|e| e.0 == curve.name) {
            let colour = entries.iter().find(|e| e.0 == *like).map_or(RGBColor(60, 60, 60), |e| e.1);
            entries.push((curve.name.clone(), colour, true));
        }
    }
    entries
}

/// Pixels of the longest name of a point.
fn longest(chart: &Chart) -> u32 {
    let Scale::Names(names) = &chart.x.scale else { return 0 };
    LETTER * names.iter().map(|name| name.chars().count()).max().unwrap_or(0) as u32
}

fn is_wide(chart: &Chart) -> bool {
    let Scale::Names(names) = &chart.x.scale else { return false };
    names.len() > MANY || longest(chart) * names.len() as u32 > WIDTH - BESIDE
}

/// Space below the axis for vertical names of points.
fn upright(chart: &Chart) -> u32 {
    if is_wide(chart) { longest(chart) } else { 0 }
}

fn draw_all(path: &Path, charts: &[Chart]) -> Result<(), Box<dyn std::error::Error>> {
    let wide = charts.iter().any(is_wide);
    let across = if wide { 1 } else { charts.len().clamp(1, 2) };
    let width = if wide { 2 * WIDTH } else { WIDTH * across as u32 };
    let height = HEIGHT + charts.iter().map(upright).max().unwrap_or(0);
    let rows = charts.len().div_ceil(across) as u32;
    let entries = legend(charts);
    let names = NAMES * (width / WIDTH) as usize;
    let strip = STRIP * entries.len().div_ceil(names) as u32 + 10;
    let root = SVGBackend::new(path, (width, height * rows + strip)).into_drawing_area();
    root.fill(&WHITE)?;
    let (above, below) = root.split_vertically(height * rows);
    for (chart, area) in charts.iter().zip(above.split_evenly((rows as usize, across))) {
        draw_chart(chart, &area, &entries)?;
    }
    for (k, (name, colour, published)) in entries.iter().enumerate() {
        let at = (24 + (k % names) as i32 * (width as usize / names) as i32, (k / names) as i32 * STRIP as i32 + 2);
        let line = |from: i32, to: i32| PathElement::new([(from, at.1 + 7), (to, at.1 + 7)], colour.stroke_width(2));
        if *published {
            for from in [0, 9, 18] {
                below.draw(&line(at.0 + from, at.0 + from + 5))?;
            }
            below.draw(&Circle::new((at.0 + 11, at.1 + 7), 4, WHITE.filled()))?;
            below.draw(&Circle::new((at.0 + 11, at.1 + 7), 4, colour.stroke_width(2)))?;
        } else {
            below.draw(&line(at.0, at.0 + 23))?;
            below.draw(&Circle::new((at.0 + 11, at.1 + 7), 4, colour.filled()))?;
        }
        below.draw(&Text::new(name.clone(), (at.0 + 30, at.1), ("sans-serif", 14)))?;
    }
    root.present()?;
    Ok(())
}

/// The range of an axis.
fn range(values: impl Iterator<Item = f64>, axis: &Axis, upright: bool) -> std::ops::Range<f64> {
    if let Scale::Names(names) = &axis.scale {
        return -0.5..names.len() as f64 - 0.5;
    }
    let log = axis.scale == Scale::Log;
    let values = values.filter(|v| v.is_finite() && (!log || *v > 0.0));
    let (least, most) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
    match (least <= most, log) {
        (false, true) => 0.1..10.0,
        (false, false) => 0.0..1.0,
        // Whole powers of ten, and a little more, so that the ends have labels.
        (true, true) => {
            let power = |v: f64| 10f64.powf(v);
            let (low, high) = (least.log10().floor(), most.log10().ceil());
            0.99 * power(low)..1.01 * power(high.max(low + 1.0))
        }
        (true, false) if upright => 1.08 * least.min(0.0)..if most > 0.0 { most * 1.08 } else { 1.0 },
        (true, false) => {
            let beside = if most > least { 0.03 * (most - least) } else { 1.0 };
            least - beside..most + beside
        }
    }
}

fn draw_chart<D: DrawingBackend>(
    chart: &Chart,
    area: &DrawingArea<D, Shift>,
    entries: &[(String, RGBColor, bool)],
) -> Result<(), Box<dyn std::error::Error>>
where
    D::ErrorType: 'static,
{
    let points = || chart.curves.iter().flat_map(|c| c.points.iter().copied());
    let x = range(points().map(|p| p.0), &chart.x, false);
    let y = range(points().map(|p| p.1), &chart.y, true);
    let below = if is_wide(chart) { upright(chart) + 20 } else { 44 };
    let mut builder = ChartBuilder::on(area);
    builder
        .caption(&chart.title, ("sans-serif", 16))
        .margin(12)
        .margin_right(24)
        .x_label_area_size(below)
        .y_label_area_size(72);
    match (chart.x.scale == Scale::Log, chart.y.scale == Scale::Log) {
        (false, false) => draw_on(chart, builder.build_cartesian_2d(x, y)?, area, entries),
        (true, false) => draw_on(chart, builder.build_cartesian_2d(x.log_scale(), y)?, area, entries),
        (false, true) => draw_on(chart, builder.build_cartesian_2d(x, y.log_scale())?, area, entries),
        (true, true) => draw_on(chart, builder.build_cartesian_2d(x.log_scale(), y.log_scale())?, area, entries),
    }
}

fn draw_on<'a, D, X, Y>(
    chart: &Chart,
    mut context: ChartContext<'a, D, Cartesian2d<X, Y>>,
    area: &DrawingArea<D, Shift>,
    entries: &[(String, RGBColor, bool)],
) -> Result<(), Box<dyn std::error::Error>>
where
    D: DrawingBackend + 'a,
    D::ErrorType: 'static,
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let format = |v: &f64| tick(*v);
    let mut mesh = context.configure_mesh();
    // No labels between powers of ten, because they would overlap.
    let powers = |axis: &Axis| if axis.scale == Scale::Log { POWERS } else { LABELS };
    mesh.x_labels(powers(&chart.x)).y_labels(powers(&chart.y));
    mesh.light_line_style(RGBColor(244, 244, 244))
        .axis_desc_style(("sans-serif", 14))
        .y_desc(chart.y.name)
        .y_label_formatter(&format);
    match &chart.x.scale {
        Scale::Names(_) => mesh.disable_x_mesh().x_labels(0).draw()?,
        _ => mesh.x_desc(chart.x.name).x_label_formatter(&format).draw()?,
    }
    let (log_x, log_y) = (chart.x.scale == Scale::Log, chart.y.scale == Scale::Log);
    let drawn = |&(x, y): &(f64, f64)| x.is_finite() && y.is_finite() && (!log_x || x > 0.0) && (!log_y || y > 0.0);
    for curve in &chart.curves {
        let points: Vec<(f64, f64)> = curve.points.iter().copied().filter(drawn).collect();
        let colour = entries.iter().find(|e| e.0 == curve.name).map_or(BLACK, |e| e.1);
        if curve.published.is_some() {
            context.draw_series(DashedLineSeries::new(points.iter().copied(), 5, 4, colour.stroke_width(1)))?;
            context.draw_series(points.iter().map(|&p| Circle::new(p, 4, WHITE.filled())))?;
            context.draw_series(points.iter().map(|&p| Circle::new(p, 4, colour.stroke_width(2))))?;
        } else {
            // No line across a name without a point: something did not fit or failed there.
            let names = matches!(chart.x.scale, Scale::Names(_));
            for run in points.chunk_by(|a, b| !names || b.0 - a.0 < 1.5) {
                context.draw_series(LineSeries::new(run.iter().copied(), colour.stroke_width(2)))?;
            }
            context.draw_series(points.iter().map(|&p| Circle::new(p, 3, colour.filled())))?;
        }
    }
    if let Scale::Names(names) = &chart.x.scale {
        let (plane, base) = (context.plotting_area(), area.get_base_pixel());
        let (_, bottom) = plane.get_pixel_range();
        for (k, name) in names.iter().enumerate() {
            let origin = chart.curves.iter().flat_map(|c| &c.points).map(|p| p.1).find(|y| *y > 0.0).unwrap_or(1.0);
            let (x, _) = plane.map_coordinate(&(k as f64, origin));
            let style = ("sans-serif", 13).into_text_style(area);
            let style = if is_wide(chart) {
                style.transform(FontTransform::Rotate270).pos(Pos::new(HPos::Right, VPos::Center))
            } else {
                style.pos(Pos::new(HPos::Center, VPos::Top))
            };
            area.draw(&Text::new(name.clone(), (x - base.0, bottom.end - base.1 + 8), style))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(scale: Scale) -> Chart {
        Chart {
            title: "a title".into(),
            x: Axis { name: "size", scale },
            y: Axis { name: "ms", scale: Scale::Log },
            curves: vec![
                Curve::measured("ours", vec![(0.0, 1.0), (1.0, 10.0), (2.0, 0.0)]),
                Curve::published("theirs", "ours", vec![(1.0, 20.0)]),
            ],
        }
    }

    #[test]
    fn tables_have_a_row_for_each_x() {
        let names = Scale::Names(vec!["a".into(), "b".into(), "c".into()]);
        assert_eq!(
            chart(names).table(),
            "| size | ours | theirs |\n|---|---:|---:|\n| a | 1 | - |\n| b | 10 | 20 |\n| c | 0 | - |\n"
        );
        assert!(chart(Scale::Linear).table().contains("| 2 | 0 | - |"));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.001, 1.0, 33.0, 2e6, 1e-8].map(tick), ["0.001", "1", "33", "2e6", "1e-8"]);
        assert_eq!([1234.56, 0.012345, 123456.0, 1e-9].map(digits), ["1235", "0.01235", "123456", "1.00e-9"]);
    }

    #[test]
    fn names_that_would_touch_stand_upright() {
        let names = |name: &str, count| Scale::Names(vec![name.into(); count]);
        assert!(!is_wide(&chart(names("bcspwr10*", 7))) && is_wide(&chart(names("electrostatic, 0.1M", 7))));
        assert!(is_wide(&chart(names("a", MANY + 1))) && !is_wide(&chart(Scale::Log)));
        assert_eq!((upright(&chart(names("a", 2))), upright(&chart(names("bcsstk33", 9)))), (0, 8 * LETTER));
    }

    #[test]
    fn every_scale_is_drawn_with_its_legend() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.svg");
        let names = (0..MANY + 1).map(|k| format!("matrix {k}")).collect();
        for scale in [Scale::Linear, Scale::Log, Scale::Names(vec!["a".into(); 3]), Scale::Names(names)] {
            draw(&path, &[chart(scale.clone()), chart(scale)]).unwrap();
            let svg = std::fs::read_to_string(&path).unwrap();
            assert!(svg.contains("theirs") && svg.contains("ours") && svg.contains("</svg>"));
        }
        let mut empty = chart(Scale::Log);
        empty.curves[0].points.clear();
        assert!(empty.is_empty());
        draw(&path, &[empty]).unwrap();
    }
}
