//! Charts: one SVG per case, a bar per contender, with the triad's rate as a line.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;

use crate::record::Line;

/// Writes `DIR/op-case-type.svg` for every case in `lines`.
pub fn bars(dir: &Path, lines: &[Line]) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let mut keys: Vec<(&str, &str)> = lines.iter().map(|l| (l.case.as_str(), l.element)).collect();
    keys.dedup();
    for (case, element) in keys {
        let here: Vec<&Line> = lines.iter().filter(|l| l.case == case && l.element == element).collect();
        let bars: Vec<&&Line> = here.iter().filter(|l| l.contender != "machine").collect();
        let triad = here.iter().find(|l| l.noun == "triad").map(|l| l.gbs);
        let safe: String = case.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
        let path = dir.join(format!("{}-{safe}-{element}.svg", lines[0].op));
        draw(&path, &format!("{} {case} {element}", lines[0].op), &bars, triad)
            .map_err(|e| anyhow!("cannot draw {}: {e}", path.display()))?;
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
