//! The convergence plot: relative residual over iterations, as an SVG with a logarithmic axis.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::failure::{Failure, Result};

const SIZE: (u32, u32) = (800, 500);
const INK: RGBColor = RGBColor(40, 44, 52);
const CURVE: RGBColor = RGBColor(31, 105, 176);
const GOAL: RGBColor = RGBColor(196, 68, 42);
const GRID: RGBColor = RGBColor(222, 226, 230);
const FONT: &str = "sans-serif";
/// What the axis covers at most. Far outside it the drawing library's search for labels does not end.
const LOWEST: f64 = 1e-30;
const HIGHEST: f64 = 1e30;

/// What the plot shows.
#[derive(Clone, Debug)]
pub(crate) struct Convergence<'a> {
    /// The matrix's name.
    pub(crate) title: &'a str,
    /// Solver, preconditioner, outcome.
    pub(crate) subtitle: &'a str,
    /// The relative residuals of each solve, the first before any iteration: a curve each.
    pub(crate) histories: &'a [&'a [f64]],
    /// The relative residual asked for.
    pub(crate) goal: f64,
}

impl Convergence<'_> {
    /// Draws the plot. Residuals without a logarithm (0, infinite, NaN) are left out; those outside
    /// [`LOWEST`]..[`HIGHEST`] are drawn at its ends.
    ///
    /// # Errors
    /// Kind `io` if the drawing library fails.
    pub(crate) fn svg(&self) -> Result<String> {
        let mut svg = String::new();
        self.draw(&mut svg)
            .map_err(|error| Failure::new("io", format!("cannot draw the convergence plot: {error}")))?;
        Ok(svg)
    }

    fn draw(&self, svg: &mut String) -> std::result::Result<(), Box<dyn std::error::Error>> {
        let points = |history: &&[f64]| -> Vec<(f64, f64)> {
            let shown = history.iter().enumerate().filter(|(_, norm)| norm.is_finite() && **norm > 0.0);
            shown.map(|(k, &norm)| (k as f64, norm.clamp(LOWEST, HIGHEST))).collect()
        };
        let curves: Vec<Vec<(f64, f64)>> = self.histories.iter().map(points).collect();
        let goal = (LOWEST..HIGHEST).contains(&self.goal).then_some(self.goal);
        let (low, high) = decades(curves.iter().flatten().map(|p| p.1).chain(goal));
        let last = curves.iter().filter_map(|points| points.last()).fold(1.0f64, |last, p| last.max(p.0));

        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let text = |size: i32| (FONT, size).into_font().color(&INK);
        let area = area.margin(12, 16, 12, 24);
        area.draw(&Text::new(self.title.to_string(), (4, 2), text(20)))?;
        area.draw(&Text::new(self.subtitle.to_string(), (4, 28), text(14)))?;
        let (_, area) = area.split_vertically(54);

        let mut chart = ChartBuilder::on(&area)
            .x_label_area_size(44)
            .y_label_area_size(76)
            .build_cartesian_2d(0.0..last * 1.02, (low..high).log_scale())?;
        chart
            .configure_mesh()
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .x_desc("iteration")
            .y_desc("relative residual")
            .axis_desc_style(text(15))
            .label_style(text(13))
            .x_label_formatter(&|k| format!("{k:.0}"))
            .y_label_formatter(&|norm| format!("{norm:.0e}"))
            .x_labels(whole_labels(last))
            .y_labels(12)
            .draw()?;
        if let Some(goal) = goal {
            chart.draw_series(DashedLineSeries::new(
                [(0.0, goal), (last * 1.02, goal)],
                6,
                4,
                ShapeStyle::from(&GOAL).stroke_width(1),
            ))?;
            let left = (FONT, 13).into_font().color(&GOAL).pos(Pos::new(HPos::Left, VPos::Bottom));
            // On the left, where the curve is still far above the goal.
            let label = Text::new(format!("asked for {goal:.0e}"), (last * 0.01, goal), left);
            chart.draw_series(std::iter::once(label))?;
        }
        for points in &curves {
            chart.draw_series(LineSeries::new(points.iter().copied(), ShapeStyle::from(&CURVE).stroke_width(2)))?;
            if let Some(&end) = points.last() {
                chart.draw_series(std::iter::once(Circle::new(end, 4, CURVE.filled())))?;
            }
        }
        area.present()?;
        Ok(())
    }
}

/// The whole decades around `norms`, at least one.
fn decades(norms: impl Iterator<Item = f64>) -> (f64, f64) {
    let (mut low, mut high) = (f64::INFINITY, 0.0f64);
    for norm in norms {
        low = low.min(norm);
        high = high.max(norm);
    }
    if high == 0.0 {
        return (1e-8, 1.0);
    }
    let bottom = (low.log10() - 0.1).floor();
    let top = high.log10().ceil().max(bottom + 1.0);
    (10f64.powf(bottom), 10f64.powf(top))
}

/// As many labels as there are whole iterations, ten at most.
fn whole_labels(last: f64) -> usize {
    (last as usize + 1).clamp(2, 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plot_shows_curve_goal_and_labels() {
        let history: Vec<f64> = (0..40).map(|k| 10f64.powf(-0.25 * f64::from(k))).collect();
        let svg = Convergence { title: "poisson2d:8", subtitle: "cg, jacobi", histories: &[&history], goal: 1e-8 }
            .svg()
            .unwrap();
        for part in
            ["<svg", "polyline", "poisson2d:8", "cg, jacobi", "iteration", "relative residual", "asked for 1e-8"]
        {
            assert!(svg.contains(part), "{part} is missing");
        }
    }

    #[test]
    fn every_history_is_a_curve() {
        let curves = |histories: &[&[f64]]| {
            let svg = Convergence { title: "t", subtitle: "s", histories, goal: 1e-8 }.svg().unwrap();
            svg.matches("<circle").count()
        };
        assert_eq!([curves(&[&[1.0, 0.1]]), curves(&[&[1.0, 0.1], &[1.0, 0.2, 1e-3]])], [1, 2]);
    }

    #[test]
    fn histories_that_a_logarithm_cannot_show_are_drawn_too() {
        for history in [&[][..], &[0.0], &[1.0], &[1.0, 0.0], &[f64::NAN, f64::INFINITY], &[1e-320, 1e308], &[1.0, 1.0]]
        {
            for goal in [0.0, 1e-8, 1e-300] {
                let svg = Convergence { title: "t", subtitle: "s", histories: &[history], goal }.svg().unwrap();
                assert!(svg.starts_with("<svg"));
            }
        }
    }

    #[test]
    fn the_axis_covers_whole_decades() {
        let (low, high) = decades([1.0, 3e-9].into_iter());
        assert!((low / 1e-9 - 1.0).abs() < 1e-9 && (high - 1.0).abs() < 1e-9);
    }
}
