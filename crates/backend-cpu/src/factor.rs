//! Incomplete factorisation on the CPU: the host's own numeric phase.
//!
//! Layout: the patterns are the host's. Order: [`spandrel_sptrsv::factor`]'s. Cost: that of [`Factor::numeric`],
//! serial, and one pass over the factors to copy them.

use std::sync::Arc;

use spandrel_backend::factor::expect_factors;
use spandrel_backend::{Assemble, Factorize, Load, Result};
use spandrel_formats::Real;
use spandrel_sptrsv::{Factor, Ic0, Ilu0, Iluk, Ilut, Ssor, for_each_factor};

use crate::{Cpu, Vector};

/// The result of a symbolic phase, shared with the host.
#[derive(Clone, Debug)]
pub struct CpuFactor<F>(Arc<F>);

fn factorize<T: Real, F: Factor<Value = T>>(
    m: &CpuFactor<F>,
    values: &Vector<T>,
    lower: &mut Vector<T>,
    upper: &mut Vector<T>,
) -> Result<f64> {
    expect_factors(&*m.0, [values.len(), lower.len(), upper.len()])?;
    let made = m.0.numeric(values.as_slice())?;
    lower.as_mut_slice().copy_from_slice(&made.lower);
    upper.as_mut_slice().copy_from_slice(&made.upper);
    Ok(made.shift)
}

macro_rules! factors {
    ([] $(($stem:ident, $Type:ident)),*) => {
        $(
            // SAFETY: a loaded object never changes, and the operation with it writes only to its operands.
            unsafe impl<T: Real> Load<$Type<T>> for Cpu {
                type Resident = CpuFactor<$Type<T>>;

                fn load(&self, host: Arc<$Type<T>>) -> Result<Self::Resident> {
                    Ok(CpuFactor(host))
                }
            }

            impl<T: Real> Factorize<$Type<T>> for Cpu {
                fn factorize(
                    &self,
                    m: &Self::Resident,
                    values: &Vector<T>,
                    lower: &mut Vector<T>,
                    upper: &mut Vector<T>,
                ) -> Result<f64> {
                    factorize(m, values, lower, upper)
                }
            }

            // The host's way is just as close here.
            impl<T: Real> Assemble<$Type<T>> for Cpu {}
        )*
    };
}
for_each_factor!(factors);
factors!([](ssor, Ssor));
