//! An invented device for tests of policies: it keeps halves of symmetric matrices, pays for long rows and lets rows
//! wait for each other.

use super::{Cost, Factoring, Iteration, Levels, Profile, Stencils, Waits};

impl Profile {
    /// A made-up device with round numbers, 100 times as fast as the reference core once it is under way. For tests.
    #[doc(hidden)]
    pub fn invented(stencils: Stencils) -> Self {
        let mut invented = Self::reference();
        invented.device = "a device that nobody has".into();
        invented.memory.nanoseconds_per_byte /= 100.0;
        invented.memory.resident_rate = Some(0.8);
        invented.products.halves_dia = true;
        let cost = Cost { call: 2000.0, row: 0.0, place: 0.0, padded: 1.0, efficiency: 1.0, step: 50.0 };
        invented.products.iter_mut().filter_map(|(_, of)| of.as_mut()).for_each(|of| *of = cost);
        // Several lanes share a row.
        for (shared, efficiency) in
            [(&mut invented.products.csr, 0.9), (&mut invented.products.csc, 0.8), (&mut invented.products.coo, 0.8)]
        {
            *shared = Some(Cost { step: 0.0, efficiency, ..cost });
        }
        let triangles = &mut invented.triangles;
        (triangles.alone, triangles.shared_level, triangles.stencils) = (0, 0, Some(stencils));
        triangles.levels = Levels {
            level: [400.0, 700.0],
            beside: 400.0,
            slice: 0.5,
            rate: 2000.0,
            change: 3000.0,
            chained: 1000.0,
            round: 250.0,
            link: 50,
        };
        triangles.waits = Some(Waits {
            seen: 400,
            round: 400,
            end: 400,
            alone: 400,
            beside: 400,
            hop: 500,
            look: 200,
            step: 700,
            inverse: 200,
        });
        invented.factoring = Some(Factoring { hop: 2000.0, shared_term: 3.0 });
        invented.iteration =
            Iteration { level: 250.0, call: 2000.0, bus: 0.02, first: 5e7, coarsening: 2.0, coarsening_shared: 0.0 };
        invented
    }
}
