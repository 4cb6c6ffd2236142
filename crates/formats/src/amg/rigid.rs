//! Rigid body modes: the near-null space of linear elasticity, from the coordinates of the points.

use crate::{Error, Real, Result};

/// The rigid body modes of points with `dimensions` coordinates each, given point by point. The translations come
/// first, then the rotations about the centre of the points: 3 columns in the plane and 6 in space. Each column has one
/// element per displacement, numbered point by point.
///
/// ```
/// use spandrel_formats::amg::rigid_body_modes;
///
/// // Two points of the plane.
/// let modes = rigid_body_modes(&[0.0, 0.0, 2.0, 0.0], 2)?;
/// assert_eq!(modes[..4], [1.0, 0.0, 1.0, 0.0]);
/// assert_eq!(modes[8..], [0.0, -1.0, 0.0, 1.0]);
/// # Ok::<(), spandrel_formats::Error>(())
/// ```
///
/// # Errors
/// [`Error::Shape`] unless there are 2 or 3 dimensions and whole points.
pub fn rigid_body_modes<T: Real>(coordinates: &[T], dimensions: usize) -> Result<Vec<T>> {
    if !matches!(dimensions, 2 | 3) {
        let (what, expected) = ("a point", if dimensions < 2 { 2 } else { 3 });
        return Err(Error::Shape { op: "rigid body modes", what, found: dimensions, expected });
    }
    if !coordinates.len().is_multiple_of(dimensions) {
        let (found, expected) = (coordinates.len(), coordinates.len().next_multiple_of(dimensions));
        return Err(Error::Shape { op: "rigid body modes", what: "the list of coordinates", found, expected });
    }
    let (n, points) = (coordinates.len(), coordinates.len() / dimensions);
    let centre: Vec<T> = (0..dimensions)
        .map(|axis| {
            let sum = coordinates.iter().skip(axis).step_by(dimensions).fold(T::zero(), |sum, &x| sum + x);
            sum / T::from_f64(points.max(1) as f64)
        })
        .collect();
    let rotations: &[(usize, usize)] = if dimensions == 2 { &[(0, 1)] } else { &[(0, 1), (1, 2), (2, 0)] };
    let mut modes = vec![T::zero(); n * (dimensions + rotations.len())];
    for (axis, column) in modes[..n * dimensions].chunks_exact_mut(n.max(1)).enumerate() {
        column.iter_mut().skip(axis).step_by(dimensions).for_each(|v| *v = T::one());
    }
    for (column, &(from, to)) in modes[n * dimensions..].chunks_exact_mut(n.max(1)).zip(rotations) {
        for (v, x) in column.chunks_exact_mut(dimensions).zip(coordinates.chunks_exact(dimensions)) {
            (v[from], v[to]) = (centre[to] - x[to], x[from] - centre[from]);
        }
    }
    Ok(modes)
}
