//! The near-null space that a caller knows: from the settings to vectors in the numbering of the solve.

use std::sync::Arc;

use spandrel_formats::amg::rigid_body_modes;
use spandrel_formats::permutation::Permutation;
use spandrel_solvers::{AmgOptions, Error, Precond, Result};

use super::settings::{NearNull, Scale, Settings};

/// The settings of a solve that knows its near-null space: algebraic multigrid, with the unknowns of the points, and no
/// scaling, which would change the vectors.
pub(super) fn resolved(mut settings: Settings, nrows: usize) -> Result<Settings> {
    let Some(near_null) = &settings.near_null else { return Ok(settings) };
    let refuse = |why: &str| Err(Error::Unsupported { why: why.to_string() });
    let unknowns = match near_null {
        NearNull::Vectors(_) => 1,
        NearNull::Coordinates { points, dimension } => {
            let (dimension, count) = (*dimension, points.len() / (*dimension).max(1));
            if !(2..=3).contains(&dimension) || count * dimension != points.len() || count * dimension != nrows {
                return Err(Error::Unsupported {
                    why: format!(
                        "{} coordinates of {dimension} per point do not fit {nrows} rows: give 2 or 3 per point, one for \
                         each displacement",
                        points.len()
                    ),
                });
            }
            dimension
        }
    };
    if settings.scale.is_some_and(|scale| scale != Scale::None) {
        return refuse("a scaled matrix has another near-null space: leave out the scaling, or the vectors");
    }
    settings.scale = Some(Scale::None);
    settings.preconditioner = match settings.preconditioner {
        None => Some(Precond::Amg(AmgOptions { unknowns, ..AmgOptions::default() })),
        Some(Precond::Amg(options)) if options.unknowns == 1 => Some(Precond::Amg(AmgOptions { unknowns, ..options })),
        amg @ Some(Precond::Amg(_)) => amg,
        Some(_) => return refuse("only amg takes near-null-space vectors and coordinates: take it, or leave them out"),
    };
    Ok(settings)
}

/// The vectors column by column, one element per row in the numbering of the solve.
pub(super) fn vectors(near_null: &NearNull, nrows: usize, numbering: Option<&Permutation>) -> Result<Arc<Vec<f64>>> {
    let vectors = match near_null {
        NearNull::Vectors(vectors) => Arc::clone(vectors),
        NearNull::Coordinates { points, dimension } => Arc::new(rigid_body_modes(points, *dimension)?),
    };
    let Some(numbering) = numbering else { return Ok(vectors) };
    if nrows == 0 || !vectors.len().is_multiple_of(nrows) {
        // The set-up of the cycle refuses this with a message that has both lengths.
        return Ok(vectors);
    }
    let columns: Vec<Vec<f64>> =
        vectors.chunks_exact(nrows).map(|column| numbering.apply(column)).collect::<spandrel_formats::Result<_>>()?;
    Ok(Arc::new(columns.concat()))
}
