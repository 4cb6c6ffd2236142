//! Generators: make matrices from a line of text such as `d3n7:64` or `banded:n=15600,d=33`.
//!
//! [`csr`] makes the matrix, [`list`] names the generators, [`is_spec`] tells a specification from a path. Everything
//! random comes from ChaCha with the seed of the specification (`seed=`). So one text means one matrix for any number
//! of threads and, up to the last bit of the system's pow, sin and cos, on every machine.

mod args;
mod electrostatic;
mod fill;
mod gfem;
mod random;
mod spec;
mod stencil;
mod system;

pub use gfem::Form;
pub use spec::{Family, Spec, is_spec};
pub use stencil::{MAX_RADIUS, Stencil};
pub use system::{Coupling, System};

use crate::{Csr, Real, Result};

/// The seed if a specification names none.
pub const DEFAULT_SEED: u64 = 1;

/// A generator, for help texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generator {
    /// Its name, before the colon.
    pub name: &'static str,
    /// How to write a specification; parts in brackets are optional.
    pub syntax: &'static str,
    /// What it makes, in one line.
    pub about: &'static str,
}

/// Makes the matrix of a specification.
///
/// ```
/// let a = spandrel_formats::generate::csr::<f64>("poisson2d:33x17")?;
/// assert_eq!(a.nrows(), 33 * 17);
/// # use spandrel_formats::Format;
/// # Ok::<(), spandrel_formats::Error>(())
/// ```
///
/// # Errors
/// [`crate::Error::Spec`] for a wrong text; [`crate::Error::TooLarge`] and [`crate::Error::OutOfMemory`] for a matrix
/// that does not fit.
pub fn csr<T: Real>(spec: &str) -> Result<Csr<T>> {
    Spec::parse(spec)?.build()
}

/// Every generator. All take `seed=N` besides what their syntax shows.
pub fn list() -> &'static [Generator] {
    const fn generator(name: &'static str, syntax: &'static str, about: &'static str) -> Generator {
        Generator { name, syntax, about }
    }
    const LIST: &[Generator] = &[
        generator("d3n7", "d3n7:N or d3n7:XxYxZ", "3-D star of radius 1, 7 points, SPD"),
        generator("d3n13", "d3n13:N or d3n13:XxYxZ", "3-D star of radius 2, 13 points, SPD"),
        generator("d3n27", "d3n27:N or d3n27:XxYxZ", "3-D box of radius 1, 27 points, SPD"),
        generator("d3n33", "d3n33:N or d3n33:XxYxZ", "3-D box of radius 1 and the axis neighbours at distance 2, SPD"),
        generator("poisson1d", "poisson1d:N", "1-D Laplacian, 3 points, SPD"),
        generator("poisson2d", "poisson2d:N or poisson2d:XxY", "2-D Laplacian, 5 points, SPD"),
        generator("poisson2d9", "poisson2d9:N or poisson2d9:XxY", "2-D box of radius 1, 9 points, SPD"),
        generator("poisson3d", "poisson3d:N or poisson3d:XxYxZ", "3-D Laplacian, 7 points, SPD"),
        generator(
            "convdiff2d",
            "convdiff2d:N[,peclet=1] or convdiff2d:XxY[,peclet=1]",
            "2-D convection and diffusion, upwind, nonsymmetric; peclet: wind times h over diffusion, 0 to 1e12",
        ),
        generator(
            "convdiff3d",
            "convdiff3d:N[,peclet=1] or convdiff3d:XxYxZ[,peclet=1]",
            "3-D convection and diffusion, upwind, nonsymmetric; peclet: wind times h over diffusion, 0 to 1e12",
        ),
        generator(
            "anisotropic2d",
            "anisotropic2d:N[,eps=0.001] or anisotropic2d:XxY[,eps=0.001]",
            "2-D -u_xx - eps u_yy, 5 points, SPD; eps: the weaker direction's weight, 1e-12 to 1e12",
        ),
        generator(
            "elasticity2d",
            "elasticity2d:N[,nu=0.3] or elasticity2d:XxY[,nu=0.3]",
            "linear elasticity, plane strain, bilinear elements: 9 points of 2 unknowns, SPD; nu: Poisson's ratio, 0 to 0.499",
        ),
        generator(
            "elasticity3d",
            "elasticity3d:N[,nu=0.3] or elasticity3d:XxYxZ[,nu=0.3]",
            "linear elasticity, trilinear elements: 27 points of 3 unknowns, SPD; nu: Poisson's ratio, 0 to 0.499",
        ),
        generator(
            "system2d",
            "system2d:N[,b=2,coupling=point,peclet=0] or system2d:XxY[,b=2,coupling=full,peclet=0]",
            "2-D diffusion of b unknowns per point, 2 to 5, that exchange at each point or drive one another (full); SPD, with peclet nonsymmetric",
        ),
        generator(
            "system3d",
            "system3d:N[,b=2,coupling=point,peclet=0] or system3d:XxYxZ[,b=2,coupling=full,peclet=0]",
            "3-D diffusion of b unknowns per point, 2 to 5, that exchange at each point or drive one another (full); SPD, with peclet nonsymmetric",
        ),
        generator(
            "tridiag",
            "tridiag:N[,lower=-1,diag=2,upper=-1]",
            "three constant diagonals, symmetric or not as the values say",
        ),
        generator(
            "banded",
            "banded:n=N,d=D (D odd)",
            "D centred diagonals (at most 2 N - 1) of random values, SPD by dominance",
        ),
        generator(
            "gfem",
            "gfem:n=N,p=P[,dim=1][,op=stiffness] or gfem:n=XxY,p=P,dim=2[,op=mass]",
            "generalised finite elements with 4 P + 3 diagonals, SPD; P: cells to each side in an interpolation, 0 to 8; with dim=2, n counts unknowns in each direction",
        ),
        generator(
            "randspd",
            "randspd:n=N,density=F,cond=C",
            "random SPD, eigenvalues spaced geometrically from 1 to 1 / C, turned by Jacobi rotations; density: least share of entries stored, 0 to 1; cond: condition number, 1 to 1e16",
        ),
        generator(
            "powerlaw",
            "powerlaw:n=N[,alpha=2.1]",
            "row lengths by a power law, random columns, nonsymmetric, diagonally dominant; alpha: exponent of the lengths' density, smaller for longer rows, 1.01 to 100",
        ),
        generator(
            "random",
            "random:n=N,nnz_per_row=K",
            "K entries in each row (1 to N, the diagonal among them), random columns, nonsymmetric, diagonally dominant",
        ),
        generator(
            "electrostatic",
            "electrostatic:n=N",
            "linear finite elements on a tetrahedral mesh, jumping permittivity, shuffled numbering, SPD",
        ),
    ];
    LIST
}
