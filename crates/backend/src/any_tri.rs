//! A triangle on a device with a plan that is chosen at run time.

use std::sync::Arc;

use spandrel_formats::Real;
use spandrel_sptrsv::{
    AnyPlan, Capellini, Elementwise, Levelset, Serial, Structured, Sweep, Syncfree, System, Systems, Triangular,
    for_each_plan,
};

use crate::{Backend, Error, EveryPlan, Gate, Result, Tri};

macro_rules! any_tri {
    ([] $(($stem:ident, $Plan:ident)),*) => {
        /// A [`Tri`] by any plan.
        #[derive(Debug)]
        pub enum AnyTri<T: Real, B: EveryPlan<T>> {
            $(
                #[doc = concat!("By the ", stringify!($stem), " plan.")]
                $Plan(Tri<B, $Plan<T>>),
            )*
        }

        impl<T: Real, B: EveryPlan<T>> AnyTri<T, B> {
            /// Loads a plan. Blocks while it is copied; must not be recorded.
            ///
            /// # Errors
            /// As [`Tri::load`].
            pub fn load(be: &B, plan: AnyPlan<T>) -> Result<Self> {
                Ok(match plan {
                    $(AnyPlan::$Plan(plan) => Self::$Plan(Tri::load(be, plan)?),)*
                })
            }
            /// Loads the plan that [`AnyPlan::auto`] chooses, and returns the reason in words. If the device does not
            /// support that plan (no schedule for the grid), it takes the plan that [`AnyPlan::general`] chooses.
            /// Blocks while the plan is copied; must not be recorded.
            ///
            /// # Errors
            /// As [`Tri::load`], except that a grid which the device refuses is no error.
            pub fn auto(
                be: &B,
                matrix: &Arc<Triangular<T>>,
                systems: Systems,
                reuse: usize,
            ) -> Result<(Self, String)> {
                let (plan, why) = AnyPlan::auto(matrix, systems, be.profile(), reuse);
                match Self::load(be, plan) {
                    Err(Error::Unsupported { why: refused, .. }) => {
                        let (plan, why) = AnyPlan::general(matrix, systems, be.profile(), reuse);
                        Ok((Self::load(be, plan)?, format!("{why} ({refused})")))
                    }
                    loaded => Ok((loaded?, why)),
                }
            }
            /// The plan's name.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$Plan(_) => <$Plan<T> as spandrel_sptrsv::Plan>::NAME,)*
                }
            }
            /// Number of rows.
            pub fn nrows(&self) -> usize {
                match self {
                    $(Self::$Plan(tri) => tri.nrows(),)*
                }
            }
            /// x <- T^-1 b or T^-T b, after a check of the sizes. See [`crate::Sptrsv::sptrsv`].
            ///
            /// # Errors
            /// As [`Tri::sptrsv`].
            pub fn sptrsv(
                &self,
                be: &B,
                gate: Gate<'_, B>,
                system: System,
                b: &<B as Backend<T>>::Vector,
                x: &mut <B as Backend<T>>::Vector,
            ) -> Result<()> {
                match self {
                    $(Self::$Plan(tri) => tri.sptrsv(be, gate, system, b, x),)*
                }
            }
            /// As [`AnyTri::sptrsv`], with b given in x.
            ///
            /// # Errors
            /// As [`Tri::sptrsv_in_place`].
            pub fn sptrsv_in_place(
                &self,
                be: &B,
                gate: Gate<'_, B>,
                system: System,
                x: &mut <B as Backend<T>>::Vector,
            ) -> Result<()> {
                match self {
                    $(Self::$Plan(tri) => tri.sptrsv_in_place(be, gate, system, x),)*
                }
            }
            /// Sets new values without a new analysis. Blocks; must not be recorded.
            ///
            /// # Errors
            /// As [`Tri::update`].
            pub fn update(&mut self, be: &B, values: &[T]) -> Result<()> {
                match self {
                    $(Self::$Plan(tri) => tri.update(be, values),)*
                }
            }
        }
    };
}
for_each_plan!(any_tri);
