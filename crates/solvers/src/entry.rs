//! The ways into a Krylov method: one solve, one that is watched or observed, several in one workspace, one in a
//! workspace of its own. They are the same for every method, and so is what they promise.

/// Gives a workspace that is a [`crate::segments::Method`] its `solve`, `solve_watched` and `solve_many`, and a
/// function for a single solve.
///
/// Doc comments before the names are further promises of `solve`. The text says how the function solves. The last
/// argument is the backend's trait for the method.
macro_rules! entry {
    ($(#[$more:meta])* $Method:ident, $function:ident, $by:literal, $Steps:ident) => {
        impl<T: ::spandrel_formats::Real, B: ::spandrel_backend::$Steps<T>> $Method<T, B> {
            /// Solves A x = b from the x given (n elements, as b). Blocks; after the first solve it allocates nothing
            /// that grows with n (the history grows with the iterations).
            ///
            $(#[$more])*
            ///
            /// # Errors
            /// Sizes that contradict each other, options out of range, a backend that fails. Everything that the
            /// numbers do is in the [`Outcome`](crate::Outcome).
            pub fn solve(
                &mut self,
                be: &B,
                a: &impl ::spandrel_backend::Operator<T, B>,
                m: &impl ::spandrel_backend::Preconditioner<T, B>,
                b: &B::Vector,
                x: &mut B::Vector,
                options: &$crate::Options,
            ) -> $crate::Result<$crate::Outcome> {
                self.solve_watched(be, a, m, b, x, options, &mut $crate::options::unwatched)
            }

            #[doc = concat!("[`", stringify!($Method), "::solve`] with a watcher, called before the first iteration, at every restart and at")]
            /// each look of the host; it can interrupt.
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($Method), "::solve`].")]
            pub fn solve_watched(
                &mut self,
                be: &B,
                a: &impl ::spandrel_backend::Operator<T, B>,
                m: &impl ::spandrel_backend::Preconditioner<T, B>,
                b: &B::Vector,
                x: &mut B::Vector,
                options: &$crate::Options,
                watcher: $crate::Watcher<'_>,
            ) -> $crate::Result<$crate::Outcome> {
                self.solve_observed(be, a, m, b, x, options, &mut |progress, _| watcher(progress))
            }

            #[doc = concat!("[`", stringify!($Method), "::solve_watched`] with an observer, which may also read the x of a look.")]
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($Method), "::solve`].")]
            pub fn solve_observed(
                &mut self,
                be: &B,
                a: &impl ::spandrel_backend::Operator<T, B>,
                m: &impl ::spandrel_backend::Preconditioner<T, B>,
                b: &B::Vector,
                x: &mut B::Vector,
                options: &$crate::Options,
                observer: $crate::Observer<'_, T>,
            ) -> $crate::Result<$crate::Outcome> {
                $crate::segments::solve(self, be, a, m, b, x, options, observer)
            }

            /// Solves A x = b for each of several right-hand sides from the x of its place, one after the other, in
            /// this workspace: what was captured for the first is replayed for the others. Each x has the bits of a
            /// solve of its own. Blocks; allocates one vector.
            ///
            /// The outcomes come in order; after one that was interrupted there are no more.
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($Method), "::solve`], and lists of different lengths.")]
            /// An error keeps the answers before it.
            pub fn solve_many(
                &mut self,
                be: &B,
                a: &impl ::spandrel_backend::Operator<T, B>,
                m: &impl ::spandrel_backend::Preconditioner<T, B>,
                b: &[B::Vector],
                x: &mut [B::Vector],
                options: &$crate::Options,
                watcher: Option<$crate::Watcher<'_>>,
            ) -> $crate::Result<Vec<$crate::Outcome>> {
                let mut unwatched = $crate::options::unwatched;
                let watcher = watcher.unwrap_or(&mut unwatched);
                $crate::segments::solve_many(self, be, a, m, b, x, options, &mut |progress, _| watcher(progress))
            }
        }

        #[doc = concat!("Solves A x = b by ", $by, " in a workspace of its own. See [`", stringify!($Method), "::solve`].")]
        ///
        /// # Errors
        #[doc = concat!("As [`", stringify!($Method), "::solve`].")]
        pub fn $function<T: ::spandrel_formats::Real, B: ::spandrel_backend::$Steps<T>>(
            be: &B,
            a: &impl ::spandrel_backend::Operator<T, B>,
            m: &impl ::spandrel_backend::Preconditioner<T, B>,
            b: &B::Vector,
            x: &mut B::Vector,
            options: &$crate::Options,
        ) -> $crate::Result<$crate::Outcome> {
            $Method::new(be, a.shape().0)?.solve(be, a, m, b, x, options)
        }
    };
}
pub(crate) use entry;
