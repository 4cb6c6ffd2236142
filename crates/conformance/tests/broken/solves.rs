//! The triangular solves and incomplete factorisations of a backend with one flaw.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use num_traits::{One, Zero};
use spandrel_backend::{Coeff, Factorize, Gate, Order, Result, Sptrsv};
use spandrel_sptrsv::{Diagonal, Factor, Plan, System, Triangle, Triangular};

use super::products::Kept;
use super::{Broken, Flaw};

/// Terms off the diagonal of each row of a system, in the order of a sum, and d.
fn rows<P: Plan>(matrix: &Triangular<P::Value>, system: System) -> (Vec<Vec<(usize, P::Value)>>, Vec<P::Value>) {
    let n = matrix.nrows();
    let mut terms = vec![Vec::new(); n];
    let mut diagonal = vec![P::Value::one(); n];
    for i in 0..n {
        let csr = matrix.csr();
        for e in csr.row_ptr()[i] as usize..csr.row_ptr()[i + 1] as usize {
            let (j, value) = (csr.col_idx()[e] as usize, csr.values()[e]);
            match system {
                _ if i == j => diagonal[i] = value,
                System::Plain => terms[i].push((j, value)),
                System::Transposed => terms[j].push((i, value)),
            }
        }
    }
    if triangle::<P>(matrix, system) == Triangle::Upper {
        terms.iter_mut().for_each(|terms| terms.reverse());
    }
    (terms, diagonal)
}

fn triangle<P: Plan>(matrix: &Triangular<P::Value>, system: System) -> Triangle {
    match system {
        System::Plain => matrix.triangle(),
        System::Transposed => matrix.triangle().transposed(),
    }
}

/// One column with b in x or beside it.
struct Column<'a, T> {
    b: &'a [T],
    before: &'a [T],
    in_place: bool,
    /// The last row reads what x held before.
    stale: bool,
}

fn column<P: Plan>(
    flaw: Flaw,
    matrix: &Triangular<P::Value>,
    system: System,
    given: &Column<'_, P::Value>,
) -> Vec<P::Value> {
    let (n, lower) = (matrix.nrows(), triangle::<P>(matrix, system) == Triangle::Lower);
    let (mut terms, diagonal) = rows::<P>(matrix, system);
    let mut x = given.before.to_vec();
    for step in 0..n {
        let i = if lower { step } else { n - 1 - step };
        let previous = (step > 0).then(|| if lower { i - 1 } else { i + 1 });
        let last = step + 1 == n;
        match flaw {
            Flaw::SumsBackwards => terms[i].reverse(),
            Flaw::DropsLastTerm if last => {
                terms[i].pop();
            }
            _ => {}
        }
        let mut s = match previous {
            Some(previous) if last && given.in_place && flaw == Flaw::ReadsOverwritten => x[previous],
            _ => given.b[i],
        };
        for &(j, value) in &terms[i] {
            s = num_traits::Float::mul_add(-value, if last && given.stale { given.before[j] } else { x[j] }, s);
        }
        if let Some(previous) = previous
            && flaw == Flaw::SpreadsNan
        {
            s += P::Value::zero() * x[previous];
        }
        x[i] = match matrix.diagonal() {
            Diagonal::Unit => s,
            Diagonal::NonUnit if flaw == Flaw::DividesByDiagonal => s / diagonal[i],
            Diagonal::NonUnit => s * (P::Value::one() / diagonal[i]),
        };
    }
    x
}

impl<B> Broken<B> {
    /// What is asked for, where the flaw is in how rows are solved or in what is left from the last solve.
    fn by_hand<P: Plan>(
        &self,
        gate: Gate<'_, B>,
        system: System,
        m: &Kept<B::Resident, P>,
        b: Option<&B::Vector>,
        x: &mut B::Vector,
    ) -> Result<()>
    where
        B: Sptrsv<P>,
    {
        let mut open = self.inner.scalar(P::Value::zero())?;
        self.inner.assign(gate, Coeff::one(), &mut open)?;
        let open = self.inner.download_scalar(&open)? == P::Value::one();
        let stale = match self.flaw {
            Flaw::StaleFlags => open && m.used.swap(true, Ordering::Relaxed),
            Flaw::GateSpoilsNext => open && m.used.load(Ordering::Relaxed),
            _ => false,
        };
        if self.flaw == Flaw::GateSpoilsNext {
            m.used.store(!open, Ordering::Relaxed);
        }
        let before = self.inner.download(x)?;
        let (b, in_place) = (b.map_or_else(|| Ok(before.clone()), |b| self.inner.download(b))?, b.is_none());
        let n = m.host.nrows().max(1);
        let mut solved = Vec::new();
        for (b, before) in b.chunks(n).zip(before.chunks(n)) {
            let given = Column { b, before, in_place, stale };
            solved.extend(column::<P>(self.flaw, m.host.matrix(), system, &given));
        }
        self.inner.copy(gate, &self.inner.upload(&solved)?, x)
    }

    /// Whether [`Broken::by_hand`] is meant.
    fn solves_by_hand(&self) -> bool {
        matches!(
            self.flaw,
            Flaw::DividesByDiagonal
                | Flaw::SumsBackwards
                | Flaw::DropsLastTerm
                | Flaw::ReadsOverwritten
                | Flaw::SpreadsNan
                | Flaw::StaleFlags
                | Flaw::GateSpoilsNext
        )
    }

    fn system(&self, system: System) -> System {
        if self.flaw == Flaw::IgnoresTransposed { System::Plain } else { system }
    }

    fn afterwards<P: Plan>(&self, x: &mut B::Vector) -> Result<()>
    where
        B: Sptrsv<P>,
    {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        if self.flaw == Flaw::Drifts && CALLS.fetch_add(1, Ordering::Relaxed) % 8 == 7 {
            self.nudge_now(x)?;
        }
        self.nudge(x)
    }
}

impl<P: Plan, B: Sptrsv<P>> Sptrsv<P> for Broken<B> {
    fn sptrsv_order(&self, m: &Self::Resident, system: System) -> Order {
        match self.flaw {
            // Noticed by the bound and by repetition, where no order is promised.
            Flaw::DropsLastTerm | Flaw::Drifts => Order::Own,
            _ => self.inner.sptrsv_order(&m.inner, system),
        }
    }
    fn sptrsv(
        &self,
        gate: Gate<'_, Self>,
        system: System,
        m: &Self::Resident,
        k: usize,
        b: &Self::Vector,
        x: &mut Self::Vector,
    ) -> Result<()> {
        let gate = self.gate(gate);
        if self.solves_by_hand() {
            return self.by_hand(gate, system, m, Some(b), x);
        }
        let mut values = self.inner.download(b)?;
        if self.flaw == Flaw::RepeatsColumn && k > 1 {
            let n = values.len() / k;
            values.copy_within(..n, n);
        }
        self.inner.sptrsv(gate, self.system(system), &m.inner, k, &self.inner.upload(&values)?, x)?;
        self.afterwards::<P>(x)
    }
    fn sptrsv_in_place(
        &self,
        gate: Gate<'_, Self>,
        system: System,
        m: &Self::Resident,
        k: usize,
        x: &mut Self::Vector,
    ) -> Result<()> {
        let gate = self.gate(gate);
        if self.solves_by_hand() {
            return self.by_hand(gate, system, m, None, x);
        }
        self.inner.sptrsv_in_place(gate, self.system(system), &m.inner, k, x)?;
        self.afterwards::<P>(x)
    }
    fn update(&self, m: &mut Self::Resident, plan: &Arc<P>) -> Result<()> {
        if self.flaw == Flaw::ForgetsUpdate {
            return Ok(());
        }
        m.host = Arc::clone(plan);
        self.inner.update(&mut m.inner, plan)
    }
    fn update_from(&self, m: &mut Self::Resident, plan: &Arc<P>, values: &Self::Vector) -> Result<()> {
        if self.flaw == Flaw::ForgetsUpdate {
            return Ok(());
        }
        let mut fresh = P::clone(plan);
        fresh.update(&self.inner.download(values)?)?;
        m.host = Arc::new(fresh);
        self.inner.update_from(&mut m.inner, plan, values)
    }
}

impl<F: Factor, B: Factorize<F>> Factorize<F> for Broken<B> {
    fn factorize(
        &self,
        m: &Self::Resident,
        values: &Self::Vector,
        lower: &mut Self::Vector,
        upper: &mut Self::Vector,
    ) -> Result<f64> {
        let shift = self.inner.factorize(&m.inner, values, lower, upper);
        if self.flaw == Flaw::NudgesFactor {
            self.nudge_now(lower)?;
        }
        shift
    }
}
