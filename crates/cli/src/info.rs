//! `spandrel info`: the structure of a matrix, the cost of each format, and the format that it would get.

use std::fmt::Write as _;
use std::io::IsTerminal;

use serde::Serialize;
use spandrel::any::AnyBackend;
use spandrel::sptrsv::{Levels, Triangle};
use spandrel::{Csr, Real};
use spandrel_formats::choose::{Choice, choose};
use spandrel_formats::grid::Grid;
use spandrel_formats::stats::{Stats, Symmetry};

use crate::args::InfoArgs;
use crate::failure::{Failure, Result};
use crate::input::{self, counted, grouped};
use crate::output::{self, Target};
use crate::progress::Spinner;
use crate::{USAGE, spy};

#[derive(Serialize)]
struct Report {
    matrix: MatrixReport,
    rows: Rows,
    band: Band,
    diagonal: DiagonalReport,
    explicit_zeros: usize,
    non_finite: usize,
    grid: GridReport,
    /// Dependency levels of the triangles; `null` unless square.
    levels: Option<[LevelReport; 2]>,
    formats: Vec<FormatReport>,
    format: &'static str,
    why: String,
    /// Of the machine that `--backend auto` runs on: the format is for it.
    backend: &'static str,
}

#[derive(Serialize)]
struct MatrixReport {
    name: String,
    nrows: usize,
    ncols: usize,
    nnz: usize,
    symmetric: bool,
    symmetry: &'static str,
    density: f64,
}

#[derive(Serialize)]
struct Rows {
    min: usize,
    max: usize,
    mean: f64,
    variance: f64,
    empty: usize,
    /// 5, 25, 50, 75, 95 %.
    quantiles: [usize; 5],
    /// Rows with 0, 1, 2..3, 4..7, ... entries.
    histogram: Vec<usize>,
}

#[derive(Serialize)]
struct Band {
    lower: usize,
    upper: usize,
    diagonals: usize,
    diagonal_fill: f64,
    ell_fill: f64,
}

#[derive(Serialize)]
struct DiagonalReport {
    missing: usize,
    zero: usize,
    negative: usize,
    dominant_rows: usize,
    strictly_dominant_rows: usize,
}

#[derive(Serialize)]
struct GridReport {
    found: bool,
    /// Points along each axis.
    size: Option<[usize; 3]>,
    points: Option<usize>,
    /// Differences of points.
    offsets: Option<Vec<[i32; 3]>>,
    /// Unknowns per point.
    unknowns: Option<usize>,
    exact: Option<bool>,
    why_not: Option<String>,
}

#[derive(Serialize)]
struct LevelReport {
    triangle: &'static str,
    levels: usize,
    mean_rows: f64,
    max_rows: usize,
}

/// Bytes of a product, or why the format does not fit.
#[derive(Serialize)]
struct FormatReport {
    format: &'static str,
    bytes: Option<u64>,
    of_csr: Option<f64>,
    shape: String,
    why_not: Option<String>,
}

pub(crate) fn run(args: &InfoArgs) -> Result<()> {
    let spy = Target::check_optional(args.spy.as_ref())?;
    output::distinct(&[("--spy", spy.as_ref())], &[("MATRIX", input::file(&args.matrix))], args.json)?;
    let stdout_is_taken = spy.as_ref().is_some_and(Target::is_stdout);
    if stdout_is_taken && std::io::stdout().is_terminal() {
        let message =
            "--spy - would write a picture to the terminal; send stdout to a file or a program, or name a file";
        return Err(Failure::new(USAGE, message));
    }
    let a = input::matrix::<f64>(&args.matrix)?;
    let report = {
        let _spinner = Spinner::start("analysing the structure");
        Report::of(input::name(&args.matrix), &a)?
    };
    if let Some(target) = &spy {
        target.write(&spy::png(&spandrel_formats::spy::draw(&a))?)?;
    }
    if args.json {
        return output::print_json(&report);
    }
    let mut text = report.text();
    if let Some(target) = &spy {
        let _ = writeln!(text, "\nspy plot written to {}", target.name());
    }
    output::report(&text, stdout_is_taken)
}

impl Report {
    fn of<T: Real>(name: &str, a: &Csr<T>) -> Result<Self> {
        let stats = Stats::of(a)?;
        let levels =
            if stats.is_square() { Some([level(a, Triangle::Lower)?, level(a, Triangle::Upper)?]) } else { None };
        let (backend, profile) = AnyBackend::auto_profile()?;
        let choice = choose(a, &profile);
        let formats = formats(&choice);
        let Stats { rows, diagonal, .. } = stats;
        Ok(Self {
            matrix: MatrixReport {
                name: name.to_string(),
                nrows: stats.nrows,
                ncols: stats.ncols,
                nnz: stats.nnz,
                symmetric: stats.symmetry == Symmetry::Symmetric,
                symmetry: match stats.symmetry {
                    Symmetry::Symmetric => "symmetric",
                    Symmetry::Skew => "skew-symmetric",
                    Symmetry::Pattern => "symmetric pattern",
                    Symmetry::None => "none",
                },
                density: stats.density,
            },
            rows: Rows {
                min: rows.min,
                max: rows.max,
                mean: rows.mean,
                variance: rows.variance,
                empty: rows.empty,
                quantiles: rows.quantiles,
                histogram: rows.histogram,
            },
            band: Band {
                lower: stats.lower,
                upper: stats.upper,
                diagonals: stats.diagonals,
                diagonal_fill: stats.diagonal_fill,
                ell_fill: stats.ell_fill,
            },
            diagonal: DiagonalReport {
                missing: diagonal.missing,
                zero: diagonal.zero,
                negative: diagonal.negative,
                dominant_rows: diagonal.dominant,
                strictly_dominant_rows: diagonal.strictly_dominant,
            },
            explicit_zeros: stats.explicit_zeros,
            non_finite: stats.non_finite,
            grid: match Grid::detect(a) {
                Ok(grid) => GridReport {
                    found: true,
                    size: Some(grid.points()),
                    points: Some(grid.stencil().len()),
                    offsets: Some(grid.stencil()),
                    unknowns: Some(grid.unknowns),
                    exact: Some(grid.exact),
                    why_not: None,
                },
                Err(why) => GridReport {
                    found: false,
                    size: None,
                    points: None,
                    offsets: None,
                    unknowns: None,
                    exact: None,
                    why_not: Some(why.to_string()),
                },
            },
            levels,
            formats,
            format: choice.format,
            why: choice.why,
            backend,
        })
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<10}{value}");
        };
        let (m, r, b, d) = (&self.matrix, &self.rows, &self.band, &self.diagonal);
        line("matrix", m.name.clone());
        line(
            "size",
            format!(
                "{} x {}, {} ({:.3} %)",
                grouped(m.nrows),
                grouped(m.ncols),
                counted(m.nnz, "entry"),
                m.density * 100.0
            ),
        );
        line("symmetry", m.symmetry.to_string());
        line(
            "rows",
            match r.min == r.max {
                true => format!("{} each, {} empty", counted(r.max, "entry"), grouped(r.empty)),
                false => format!(
                    "{} to {}, mean {:.2}, {} empty",
                    grouped(r.min),
                    counted(r.max, "entry"),
                    r.mean,
                    grouped(r.empty)
                ),
            },
        );
        for (k, &count) in r.histogram.iter().enumerate().filter(|&(_, &count)| count > 0) {
            let share = count as f64 / m.nrows.max(1) as f64;
            line("", format!("{:>15} {:>12}  {}", range(k), grouped(count), bar(share)));
        }
        line(
            "band",
            format!(
                "{} below, {} above the diagonal; {}, {:.1} % filled",
                grouped(b.lower),
                grouped(b.upper),
                counted(b.diagonals, "diagonal"),
                b.diagonal_fill * 100.0
            ),
        );
        line(
            "diagonal",
            format!(
                "{} missing, {} zero, {} negative; dominant in {}, strictly in {}",
                grouped(d.missing),
                grouped(d.zero),
                grouped(d.negative),
                counted(d.dominant_rows, "row"),
                grouped(d.strictly_dominant_rows)
            ),
        );
        if self.explicit_zeros + self.non_finite > 0 {
            let (zeros, bad) = (counted(self.explicit_zeros, "stored zero"), grouped(self.non_finite));
            line("values", format!("{zeros}, {bad} infinite or NaN"));
        }
        line("grid", self.grid.in_words());
        for level in self.levels.iter().flatten() {
            line(
                level.triangle,
                format!(
                    "{}, {:.1} rows each on average, {} at most",
                    counted(level.levels, "dependency level"),
                    level.mean_rows,
                    grouped(level.max_rows)
                ),
            );
        }
        let _ = writeln!(text, "\n{:<10}{:>11}{:>8}", "format", "bytes", "of csr");
        for format in &self.formats {
            let mark = if format.format == self.format { " <-" } else { "" };
            let _ = match (format.bytes, format.of_csr, &format.why_not) {
                (Some(bytes), Some(share), _) => writeln!(
                    text,
                    "{:<10}{:>11}{share:>8.2}  {}{mark}",
                    format.format,
                    input::bytes(bytes),
                    format.shape
                ),
                (_, _, why) => {
                    writeln!(text, "{:<10}{:>11}{:>8}  {}", format.format, "-", "-", why.as_deref().unwrap_or(""))
                }
            };
        }
        let place = if self.backend == "cpu" { "" } else { " on the GPU" };
        let _ = writeln!(text, "\nwould use {}{place}: {}", self.format, self.why);
        // A format without a remark must not leave trailing blanks.
        text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }
}

impl GridReport {
    fn in_words(&self) -> String {
        match (&self.size, self.points, self.exact, &self.why_not) {
            (Some([x, y, z]), Some(points), Some(exact), _) => {
                let rest = if exact { "every row has all its neighbours" } else { "some rows lack neighbours" };
                let unknowns = match self.unknowns {
                    Some(unknowns) if unknowns > 1 => format!(", {unknowns} unknowns per point"),
                    _ => String::new(),
                };
                format!("{x} x {y} x {z}, stencil of {}{unknowns}, {rest}", counted(points, "point"))
            }
            (_, _, _, why) => format!("no: {}", why.as_deref().unwrap_or("")),
        }
    }
}

fn level<T: Real>(a: &Csr<T>, triangle: Triangle) -> Result<LevelReport> {
    let levels = Levels::of(a, triangle).map_err(|error| Failure::new("invalid_matrix", error.to_string()))?;
    Ok(LevelReport {
        triangle: match triangle {
            Triangle::Lower => "lower",
            Triangle::Upper => "upper",
        },
        levels: levels.count(),
        mean_rows: levels.mean_width(),
        max_rows: levels.max_width(),
    })
}

fn formats(choice: &Choice) -> Vec<FormatReport> {
    let csr = choice.candidate("csr").and_then(|csr| csr.spmv.as_ref().ok().copied()).unwrap_or(1).max(1);
    let report = |candidate: &spandrel_formats::choose::Candidate| {
        let bytes = candidate.spmv.as_ref().ok().copied();
        FormatReport {
            format: candidate.name,
            bytes,
            of_csr: bytes.map(|bytes| bytes as f64 / csr as f64),
            shape: candidate.shape.clone(),
            why_not: candidate.spmv.as_ref().err().cloned(),
        }
    };
    choice.candidates.iter().map(report).collect()
}

/// The row lengths that histogram class `k` holds.
fn range(k: usize) -> String {
    match k {
        0 => "0".to_string(),
        1 => "1".to_string(),
        k => format!("{}..{}", grouped(1 << (k - 1)), grouped((1 << k) - 1)),
    }
}

/// A bar as long as `share` of its full width, at least a tick.
fn bar(share: f64) -> String {
    const FULL: f64 = 40.0;
    "#".repeat(((share * FULL).round() as usize).max(1))
}
