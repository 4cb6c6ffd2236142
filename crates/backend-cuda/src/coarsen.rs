//! Algebraic coarsening on the GPU.
//!
//! Layout: the aggregates are stored as the graph of strong couplings (row pointers and neighbours) and the aggregate
//! of each node.
//! Order: stored, with the bits of [`spandrel_formats::amg`]. Cost: see kernels/coarsen.cu. The smoothed prolongation
//! is the product of the filter F and the tentative prolongation T, which are both freed afterwards. Kernels:
//! kernels/coarsen.cu.

use std::sync::Arc;

use spandrel_backend::error::{expect_len, expect_sizes as expect};
use spandrel_backend::{Coarsen, Coarser, Converted, Prolongation, Result, Scaling, Spgemm, Transpose};
use spandrel_formats::amg::{MOST_UNKNOWNS, OMEGA};
use spandrel_formats::index::checked;
use spandrel_formats::{Csr, Offset, Ordinal, Real};

use crate::csr::{MadeArrays, converted, not_recorded};
use crate::kernel::{kernels, parameters};
use crate::launch::Grid;
use crate::memory::{Address, Buffer};
use crate::spgemm::{CudaSpgemm, sizes};
use crate::transpose::CudaTranspose;
use crate::{Cuda, CudaCsr, Vector};

parameters! {
    /// The arrays of a matrix.
    struct Matrix { ptr: Address, cols: Address, values: Address }

    /// A matrix, its nodes, and the arrays to which their strong couplings are written.
    struct Couple {
        ptr: Address, cols: Address, values: Address, nodes: u32, unknowns: u32, shares: Address, squared: f64,
        rows: Address, neighbours: Address, weights: Address,
    }
}

kernels! {
    struct ShareCoarsen { matrix: Matrix, nodes: u32, unknowns: u32, shares: Address }
    in COARSEN { ENTRY: "share_coarsen" }

    struct CoupleCoarsen { couple: Couple }
    in COARSEN {
        COUNT_ROWS: "count_rows_coarsen",
        FILL_ROWS: "fill_rows_coarsen",
        COUNT_NODES: "count_nodes_coarsen",
        FILL_NODES: "fill_nodes_coarsen",
    }

    struct DrawCoarsen { graph: Address, nodes: u32, state: Address, near: Address }
    in COARSEN { ENTRY: "draw_coarsen" }

    struct LookCoarsen { graph: Address, neighbours: Address, nodes: u32, state: Address, near: Address }
    in COARSEN { ENTRY: "look_coarsen" }

    struct DecideCoarsen {
        graph: Address, neighbours: Address, nodes: u32, round: u32, state: Address, near: Address, left: Address,
    }
    in COARSEN { ENTRY: "decide_coarsen" }

    struct CountRootsCoarsen { state: Address, nodes: u32, numbers: Address }
    in COARSEN { ENTRY: "count_roots_coarsen" }

    struct NumberRootsCoarsen { state: Address, nodes: u32, numbers: Address, assigned: Address }
    in COARSEN { ENTRY: "number_roots_coarsen" }

    struct JoinCoarsen {
        graph: Address, neighbours: Address, weights: Address, nodes: u32, from: Address, to: Address,
    }
    in COARSEN { ENTRY: "join_coarsen" }

    struct CountTentativeCoarsen { assigned: Address, n: u32, unknowns: u32, vectors: u32, rows: Address }
    in COARSEN { ENTRY: "count_tentative_coarsen" }

    struct FillTentativeCoarsen {
        assigned: Address, n: u32, unknowns: u32, vectors: u32, near_null: Address, rows: Address, cols: Address,
        values: Address,
    }
    in COARSEN { ENTRY: "fill_tentative_coarsen" }

    struct OrthonormaliseCoarsen {
        ptr: Address, positions: Address, aggregates: u32, vectors: u32, values: Address, coarse: Address,
        dropped: Address, roundoff: f64,
    }
    in COARSEN { ENTRY: "orthonormalise_coarsen" }

    struct CountFilterCoarsen {
        matrix: Matrix, n: u32, unknowns: u32, graph: Address, neighbours: Address, assigned: Address, rows: Address,
    }
    in COARSEN { ENTRY: "count_filter_coarsen" }

    struct FillFilterCoarsen {
        matrix: Matrix, n: u32, unknowns: u32, graph: Address, neighbours: Address, assigned: Address, omega: f64,
        rows: Address, out_cols: Address, out: Address,
    }
    in COARSEN { ENTRY: "fill_filter_coarsen" }

    struct DiagonalCoarsen { matrix: Matrix, n: u32, diagonal: Address, inverse: Address, unfit: Address }
    in COARSEN { ENTRY: "diagonal_coarsen" }

    struct BoundCoarsen {
        matrix: Matrix, n: u32, inverse: Address, w: Address, next: Address, most: Address,
    }
    in COARSEN { ENTRY: "bound_coarsen" }

    struct ScaleCoarsen { matrix: Matrix, n: u32, left: Address, right: Address, out: Address }
    in COARSEN { ENTRY: "scale_coarsen" }

    struct AddDiagonalCoarsen { ptr: Address, cols: Address, n: u32, d: Address, values: Address }
    in COARSEN { ENTRY: "add_diagonal_coarsen" }
}

/// Threads of a thread block (`COARSEN_THREADS` of kernels/coarsen.cu), and lanes per node or row in kernels in which
/// several lanes share one, unless a whole warp does.
const THREADS: usize = 256;
const LANES: usize = 8;
const WARP: usize = 32;
/// Rounds after which the host checks whether all roots are found.
const ROUNDS: u32 = 4;

/// Strong couplings and the aggregates made from them. A plan shares them.
#[derive(Clone, Debug)]
pub struct CudaAggregates {
    /// Where the neighbours of each node begin.
    graph: Arc<Buffer<Offset>>,
    neighbours: Arc<Buffer<Ordinal>>,
    /// The aggregate of each node.
    assigned: Arc<Buffer<Ordinal>>,
    count: usize,
    nodes: usize,
    unknowns: usize,
}

/// Everything about a coarser matrix that does not depend on values, and room for F and A P.
#[derive(Debug)]
pub struct CudaCoarser<T> {
    aggregates: CudaAggregates,
    /// Row pointers and columns of A. F has room for the entries that follow from this pattern, so its kernel must not
    /// read another pattern.
    pattern: [Arc<Buffer<u32>>; 2],
    sizes: (usize, usize, usize),
    filter: CudaCsr<T>,
    tentative: CudaCsr<T>,
    dropped: Vector<T>,
    fine: CudaCsr<T>,
    /// The plans of F T, A P and P^T (A P).
    products: [CudaSpgemm; 3],
    transpose: CudaTranspose,
}

/// One thread for each of `count` items.
fn each(count: usize) -> Grid {
    Grid::of(count.div_ceil(THREADS), THREADS as u32)
}

/// [`LANES`] lanes for each of `count` items.
fn lanes(count: usize) -> Grid {
    Grid::of(count.div_ceil(THREADS / LANES), THREADS as u32)
}

/// One warp for each of `count` items.
fn warps(count: usize) -> Grid {
    Grid::of(count.div_ceil(THREADS / WARP), THREADS as u32)
}

fn matrix<T: Real>(a: &CudaCsr<T>) -> Matrix {
    let (ptr, cols, values) = a.arrays();
    Matrix { ptr: ptr.pointer(), cols: cols.pointer(), values: values.pointer() }
}

impl Cuda {
    /// The strong couplings of each node, with their weights.
    fn couplings<T: Real>(
        &self,
        a: &CudaCsr<T>,
        unknowns: usize,
        strength: f64,
    ) -> Result<(Buffer<Offset>, Buffer<Ordinal>, Buffer<T>)> {
        let (stream, nodes) = (self.stream(), a.nrows() / unknowns);
        let shares = Buffer::<T>::uninit(stream, nodes, "weights of nodes")?;
        let of = matrix(a);
        let parameters =
            ShareCoarsen { matrix: of, nodes: nodes as u32, unknowns: unknowns as u32, shares: shares.pointer() };
        // SAFETY: share_coarsen(ptr, cols, values, nodes, unknowns, shares), 8 lanes per node.
        unsafe { self.launch::<T, _>(ShareCoarsen::ENTRY, lanes(nodes), &parameters)? };
        let graph = Buffer::<Offset>::zeros(stream, nodes + 1, "couplings of nodes")?;
        let (count, fill, grid) = if unknowns == 1 {
            (CoupleCoarsen::COUNT_ROWS, CoupleCoarsen::FILL_ROWS, lanes(nodes))
        } else {
            (CoupleCoarsen::COUNT_NODES, CoupleCoarsen::FILL_NODES, warps(nodes))
        };
        let Matrix { ptr, cols, values } = of;
        let mut couple = Couple {
            ptr,
            cols,
            values,
            nodes: nodes as u32,
            unknowns: unknowns as u32,
            shares: shares.pointer(),
            squared: strength * strength,
            rows: graph.pointer(),
            neighbours: Address::NULL,
            weights: Address::NULL,
        };
        // SAFETY: count_{rows,nodes}_coarsen, 8 lanes or one warp per node, which write a count per node and no
        // coupling.
        unsafe { self.launch::<T, _>(count, grid, &CoupleCoarsen { couple })? };
        let all = self.running_sums::<T>(&graph)?;
        let all = checked(usize::try_from(all).unwrap_or(usize::MAX), "couplings")? as usize;
        let neighbours = Buffer::<Ordinal>::uninit(stream, all, "couplings")?;
        let weights = Buffer::<T>::uninit(stream, all, "weights of couplings")?;
        (couple.neighbours, couple.weights) = (neighbours.pointer(), weights.pointer());
        // SAFETY: fill_{rows,nodes}_coarsen, 8 lanes or one warp per node, which write as many couplings as were
        // counted, from where `rows` says.
        unsafe { self.launch::<T, _>(fill, grid, &CoupleCoarsen { couple })? };
        Ok((graph, neighbours, weights))
    }

    /// Finds all roots. Returns the state of each node at the end. Blocks.
    fn roots<T: Real>(&self, graph: Address, neighbours: Address, count: usize) -> Result<Buffer<u64>> {
        let (stream, nodes) = (self.stream(), count as u32);
        let state = Buffer::<u64>::uninit(stream, count, "states of nodes")?;
        let around = Buffer::<u64>::uninit(stream, count, "states of nodes")?;
        let (at, near) = (state.pointer(), around.pointer());
        // SAFETY: draw_coarsen(graph, nodes, state, near), a state per node.
        unsafe {
            self.launch::<T, _>(DrawCoarsen::ENTRY, each(count), &DrawCoarsen { graph, nodes, state: at, near })?
        };
        let mut first = 0;
        loop {
            // Each round decides at least the node with the smallest priority.
            let left = Buffer::<u32>::zeros(stream, ROUNDS as usize, "nodes that are left")?;
            for round in 0..ROUNDS {
                let look = LookCoarsen { graph, neighbours, nodes, state: at, near };
                let left = left.address(round as usize);
                let decide = DecideCoarsen { graph, neighbours, nodes, round: first + round, state: at, near, left };
                // SAFETY: look_coarsen(graph, neighbours, nodes, state, near) and decide_coarsen, which says in `left`
                // whether any node is undecided; a state per node.
                unsafe {
                    self.launch::<T, _>(LookCoarsen::ENTRY, each(count), &look)?;
                    self.launch::<T, _>(DecideCoarsen::ENTRY, each(count), &decide)?;
                }
            }
            let mut last = [0];
            left.read_at(ROUNDS as usize - 1, &mut last)?;
            if last[0] == 0 {
                return Ok(state);
            }
            first += ROUNDS;
        }
    }

    /// The tentative prolongation T, the near-null-space vectors of the coarser matrix, and a mark for each dropped
    /// unknown. Blocks.
    fn tentative<T: Real>(
        &self,
        aggregates: &CudaAggregates,
        near_null: &Vector<T>,
        vectors: usize,
    ) -> Result<(CudaCsr<T>, Vector<T>, Vector<T>)> {
        let (stream, n) = (self.stream(), aggregates.nodes * aggregates.unknowns);
        let (unknowns, assigned) = (aggregates.unknowns as u32, aggregates.assigned.pointer());
        let size = aggregates.count * vectors;
        let rows = Buffer::<Offset>::zeros(stream, n + 1, "a matrix's row pointers")?;
        let count =
            CountTentativeCoarsen { assigned, n: n as u32, unknowns, vectors: vectors as u32, rows: rows.pointer() };
        // SAFETY: count_tentative_coarsen(assigned, n, unknowns, vectors, rows), a count per row.
        unsafe { self.launch::<T, _>(CountTentativeCoarsen::ENTRY, each(n), &count)? };
        let nnz = self.running_sums::<T>(&rows)?;
        let nnz = checked(usize::try_from(nnz).unwrap_or(usize::MAX), "entries")? as usize;
        let cols = Buffer::<Ordinal>::uninit(stream, nnz, "a matrix's columns")?;
        let values = Buffer::<T>::uninit(stream, nnz, "a matrix's values")?;
        let fill = FillTentativeCoarsen {
            assigned,
            n: n as u32,
            unknowns,
            vectors: vectors as u32,
            near_null: near_null.pointer(),
            rows: rows.pointer(),
            cols: cols.pointer(),
            values: values.pointer(),
        };
        // SAFETY: fill_tentative_coarsen, as counted; `near_null` has a column of n elements per vector.
        unsafe { self.launch::<T, _>(FillTentativeCoarsen::ENTRY, each(n), &fill)? };
        let t = self.bare_csr(MadeArrays { shape: (n, size, nnz), row_ptr: rows, col_idx: cols, values })?;
        let (ptr, _, positions) = self.transposed_pattern(&t)?;
        let (coarse, dropped) = (Vector::zeros(stream, size * vectors)?, Vector::zeros(stream, size)?);
        let orthonormalise = OrthonormaliseCoarsen {
            ptr: ptr.pointer(),
            positions: positions.pointer(),
            aggregates: aggregates.count as u32,
            vectors: vectors as u32,
            values: t.arrays().2.pointer(),
            coarse: coarse.pointer(),
            dropped: dropped.pointer(),
            roundoff: T::UNIT_ROUNDOFF,
        };
        // SAFETY: orthonormalise_coarsen(ptr, positions, aggregates, vectors, values, coarse, dropped, roundoff), one
        // warp per aggregate: the transpose's pointers, a coarse vector per vector, and a mark per coarse unknown;
        // nothing else holds T.
        unsafe { self.launch::<T, _>(OrthonormaliseCoarsen::ENTRY, warps(aggregates.count), &orthonormalise)? };
        Ok((t, coarse, dropped))
    }

    /// The row pointers of the filter F, with room for columns and values. Blocks.
    fn filter_pattern<T: Real>(&self, a: &CudaCsr<T>, aggregates: &CudaAggregates) -> Result<CudaCsr<T>> {
        let (stream, n) = (self.stream(), a.nrows());
        let (graph, neighbours) = (aggregates.graph.pointer(), aggregates.neighbours.pointer());
        let (unknowns, assigned, of) = (aggregates.unknowns as u32, aggregates.assigned.pointer(), matrix(a));
        let rows = Buffer::<Offset>::zeros(stream, n + 1, "a matrix's row pointers")?;
        let (n, at) = (n as u32, rows.pointer());
        let count = CountFilterCoarsen { matrix: of, n, unknowns, graph, neighbours, assigned, rows: at };
        // SAFETY: count_filter_coarsen(ptr, cols, values, n, unknowns, graph, neighbours, assigned, rows), a count per
        // row; the graph and the aggregates are of as many nodes as A has.
        unsafe { self.launch::<T, _>(CountFilterCoarsen::ENTRY, lanes(a.nrows()), &count)? };
        let nnz = self.running_sums::<T>(&rows)?;
        let nnz = checked(usize::try_from(nnz).unwrap_or(usize::MAX), "entries")? as usize;
        let cols = Buffer::<Ordinal>::uninit(stream, nnz, "a matrix's columns")?;
        let values = Buffer::<T>::uninit(stream, nnz, "a matrix's values")?;
        self.bare_csr(MadeArrays { shape: (a.nrows(), a.nrows(), nnz), row_ptr: rows, col_idx: cols, values })
    }

    /// Writes columns and values of the filter F. Does not block.
    ///
    /// # Safety
    /// [`Cuda::filter_pattern`] made `f` for the pattern `of` and these aggregates.
    unsafe fn fill_filter<T: Real>(&self, of: Matrix, aggregates: &CudaAggregates, f: &mut CudaCsr<T>) -> Result<()> {
        let (rows, cols, values) = f.arrays();
        let fill = FillFilterCoarsen {
            matrix: of,
            n: f.nrows() as u32,
            unknowns: aggregates.unknowns as u32,
            graph: aggregates.graph.pointer(),
            neighbours: aggregates.neighbours.pointer(),
            assigned: aggregates.assigned.pointer(),
            omega: OMEGA,
            rows: rows.pointer(),
            out_cols: cols.pointer(),
            out: values.pointer(),
        };
        // SAFETY: fill_filter_coarsen writes as many entries as were counted; only the caller holds F.
        unsafe { self.launch::<T, _>(FillFilterCoarsen::ENTRY, lanes(f.nrows()), &fill) }
    }

    /// The filter F. Blocks.
    fn filter<T: Real>(&self, a: &CudaCsr<T>, aggregates: &CudaAggregates) -> Result<CudaCsr<T>> {
        let mut f = self.filter_pattern(a, aggregates)?;
        // SAFETY: the line above made it.
        unsafe { self.fill_filter(matrix(a), aggregates, &mut f)? };
        Ok(f)
    }

    /// The number of near-null-space vectors.
    ///
    /// # Errors
    /// [`spandrel_backend::Error::Shape`] for another matrix's aggregates, or unless the vectors are whole columns.
    fn vectors<T: Real>(&self, n: usize, aggregates: &CudaAggregates, near_null: &Vector<T>) -> Result<usize> {
        expect_len("prolongation", "the matrix", n, aggregates.nodes * aggregates.unknowns)?;
        let vectors = near_null.len() / n.max(1);
        if vectors == 0 || near_null.len() != n * vectors {
            expect_len("aggregation", "the near-null space", near_null.len(), n * vectors.max(1))?;
        }
        Ok(vectors)
    }
}

/// # Errors
/// [`spandrel_backend::Error::Shape`] unless there is one scale per row and, with `right`, one per column.
fn expect_scales<T: Real>(m: &CudaCsr<T>, left: &Vector<T>, right: Option<&Vector<T>>) -> Result<()> {
    expect_len("scaled", "the scales of rows", left.len(), m.nrows())?;
    right.map_or(Ok(()), |right| expect_len("scaled", "the scales of columns", right.len(), m.ncols()))
}

/// The parameters of the kernel that scales the entries of `m`.
fn scale<T: Real>(m: &CudaCsr<T>, left: &Vector<T>, right: Option<&Vector<T>>, out: Address) -> ScaleCoarsen {
    let (left, right) = (left.pointer(), right.map_or(Address::NULL, Vector::pointer));
    ScaleCoarsen { matrix: matrix(m), n: m.nrows() as u32, left, right, out }
}

impl<T: Real> Coarsen<Csr<T>> for Cuda {
    type Aggregates = CudaAggregates;
    type CoarserPlan = CudaCoarser<T>;

    fn aggregate(&self, a: &CudaCsr<T>, unknowns: usize, strength: f64) -> Result<(CudaAggregates, usize)> {
        not_recorded(self, "aggregation")?;
        let n = a.nrows();
        expect_len("strength", "a row", a.ncols(), n)?;
        expect_len("strength", "a node", unknowns, unknowns.clamp(1, MOST_UNKNOWNS))?;
        expect_len("strength", "the list of nodes", n, n.next_multiple_of(unknowns))?;
        let (stream, nodes) = (self.stream(), n / unknowns);
        if nodes == 0 {
            let graph = Arc::new(Buffer::zeros(stream, 1, "couplings of nodes")?);
            let neighbours = Arc::new(Buffer::uninit(stream, 0, "couplings")?);
            let assigned = Arc::new(Buffer::uninit(stream, 0, "aggregates of nodes")?);
            return Ok((CudaAggregates { graph, neighbours, assigned, count: 0, nodes, unknowns }, 0));
        }
        let (graph, neighbours, weights) = self.couplings(a, unknowns, strength)?;
        let (graph_at, neighbours_at) = (graph.pointer(), neighbours.pointer());
        let state = self.roots::<T>(graph_at, neighbours_at, nodes)?;
        let numbers = Buffer::<u32>::zeros(stream, nodes + 1, "numbers of aggregates")?;
        let of = nodes as u32;
        let count = CountRootsCoarsen { state: state.pointer(), nodes: of, numbers: numbers.pointer() };
        // SAFETY: count_roots_coarsen(state, nodes, numbers), a state and a number per node.
        unsafe { self.launch::<T, _>(CountRootsCoarsen::ENTRY, each(nodes), &count)? };
        let count = self.running_sums::<T>(&numbers)? as usize;
        let mut assigned = Buffer::<Ordinal>::uninit(stream, nodes, "aggregates of nodes")?;
        let number = NumberRootsCoarsen {
            state: state.pointer(),
            nodes: of,
            numbers: numbers.pointer(),
            assigned: assigned.pointer(),
        };
        // SAFETY: number_roots_coarsen(state, nodes, numbers, assigned), one of each per node.
        unsafe { self.launch::<T, _>(NumberRootsCoarsen::ENTRY, each(nodes), &number)? };
        for _ in 0..2 {
            let joined = Buffer::<Ordinal>::uninit(stream, nodes, "aggregates of nodes")?;
            let join = JoinCoarsen {
                graph: graph_at,
                neighbours: neighbours_at,
                weights: weights.pointer(),
                nodes: of,
                from: assigned.pointer(),
                to: joined.pointer(),
            };
            // SAFETY: join_coarsen(graph, neighbours, weights, nodes, from, to), an aggregate per node in each.
            unsafe { self.launch::<T, _>(JoinCoarsen::ENTRY, each(nodes), &join)? };
            assigned = joined;
        }
        let (graph, neighbours, assigned) = (Arc::new(graph), Arc::new(neighbours), Arc::new(assigned));
        Ok((CudaAggregates { graph, neighbours, assigned, count, nodes, unknowns }, count))
    }

    fn assignment(&self, aggregates: &CudaAggregates) -> Result<Vec<Ordinal>> {
        not_recorded(self, "aggregates on their way to the host")?;
        aggregates.assigned.to_host("aggregates of nodes")
    }

    fn prolongation(
        &self,
        a: &CudaCsr<T>,
        aggregates: &CudaAggregates,
        near_null: &Vector<T>,
    ) -> Result<Prolongation<Converted<CudaCsr<T>>, Vector<T>>> {
        not_recorded(self, "a prolongation")?;
        let vectors = self.vectors(a.nrows(), aggregates, near_null)?;
        let (t, near_null, dropped) = self.tentative(aggregates, near_null, vectors)?;
        let f = self.filter(a, aggregates)?;
        let (arrays, plan) = self.product_arrays(&f, &t)?;
        let mut p = self.short_rows_csr(arrays)?;
        self.spgemm_numeric(None, &plan, &f, &t, &mut p.resident)?;
        Ok(Prolongation { p, near_null, dropped })
    }

    fn galerkin(&self, a: &CudaCsr<T>, p: &CudaCsr<T>) -> Result<(Converted<CudaCsr<T>>, Converted<CudaCsr<T>>)> {
        not_recorded(self, "a coarser matrix")?;
        expect_len("galerkin", "a row of A", a.ncols(), a.nrows())?;
        expect_len("galerkin", "a column of P", p.nrows(), a.nrows())?;
        let fine = self.bare_product(a, p)?;
        let transposed = self.bare_transpose(p)?;
        let coarse = self.bare_product(&transposed, &fine)?;
        Ok((converted(transposed), converted(coarse)))
    }

    fn coarser_symbolic(
        &self,
        a: &CudaCsr<T>,
        aggregates: &CudaAggregates,
        near_null: &Vector<T>,
    ) -> Result<(Coarser<Converted<CudaCsr<T>>, Vector<T>>, CudaCoarser<T>)> {
        not_recorded(self, "the pattern of a coarser matrix")?;
        expect_len("coarser", "a row of A", a.ncols(), a.nrows())?;
        let vectors = self.vectors(a.nrows(), aggregates, near_null)?;
        let (tentative, near_null, dropped) = self.tentative(aggregates, near_null, vectors)?;
        // The products need the columns of F, which its kernel writes along with the values.
        let filter = self.filter(a, aggregates)?;
        let (p, of_p) = self.product_arrays(&filter, &tentative)?;
        let p = self.bare_csr(p)?;
        let (transposed, transpose) = self.transposed_arrays(&p)?;
        let transposed = self.bare_csr(transposed)?;
        let (fine, of_fine) = self.product_arrays(a, &p)?;
        let fine = self.bare_csr(fine)?;
        let (coarse, of_coarse) = self.product_arrays(&transposed, &fine)?;
        let coarse = self.bare_csr(coarse)?;
        let plan = CudaCoarser {
            aggregates: aggregates.clone(),
            pattern: self.pattern_of(a)?,
            sizes: sizes(a),
            filter,
            tentative,
            dropped,
            fine,
            products: [of_p, of_fine, of_coarse],
            transpose,
        };
        let [p, transposed, a] = [p, transposed, coarse].map(converted);
        Ok((Coarser { p, transposed, a, near_null }, plan))
    }

    fn coarser_numeric(
        &self,
        a: &CudaCsr<T>,
        plan: &mut CudaCoarser<T>,
        to: Coarser<&mut CudaCsr<T>, ()>,
    ) -> Result<()> {
        not_recorded(self, "a coarser matrix")?;
        let Coarser { p, transposed, a: coarse, .. } = to;
        expect("coarser", [["a column of A", "a row of A", "the values of A"]], [sizes(a)], [plan.sizes])?;
        let [of_p, of_fine, of_coarse] = &plan.products;
        let [ptr, cols] = &plan.pattern;
        let of = Matrix { ptr: ptr.pointer(), cols: cols.pointer(), values: a.arrays().2.pointer() };
        // SAFETY: the plan's filter was made for this pattern and these aggregates; A has a value for each of its
        // entries.
        unsafe { self.fill_filter(of, &plan.aggregates, &mut plan.filter)? };
        self.spgemm_numeric(None, of_p, &plan.filter, &plan.tentative, p)?;
        self.transpose_numeric(None, &plan.transpose, p, transposed)?;
        self.spgemm_numeric(None, of_fine, a, p, &mut plan.fine)?;
        self.spgemm_numeric(None, of_coarse, transposed, &plan.fine, coarse)?;
        self.add_to_diagonal(coarse, &plan.dropped)
    }

    fn scaling(&self, a: &CudaCsr<T>) -> Result<Scaling<Vector<T>>> {
        not_recorded(self, "a look at the diagonal")?;
        let (stream, n) = (self.stream(), a.nrows());
        expect_len("scaling", "a row", a.ncols(), n)?;
        let (diagonal, inverse) = (Vector::uninit(stream, n)?, Vector::uninit(stream, n)?);
        // Two bounds on the spectrum, and the first unfit row in the lower half of the last word.
        let found = Buffer::from_host(stream, &[0, 0, u64::from(u32::MAX)], "bounds on the spectrum")?;
        let of = matrix(a);
        let (rows, over) = (n as u32, inverse.pointer());
        let find = DiagonalCoarsen {
            matrix: of,
            n: rows,
            diagonal: diagonal.pointer(),
            inverse: over,
            unfit: found.address(2),
        };
        let steps = [Buffer::<f64>::uninit(stream, n, "row sums")?, Buffer::<f64>::uninit(stream, n, "row sums")?];
        // SAFETY: diagonal_coarsen(ptr, cols, values, n, diagonal, inverse, unfit), 8 lanes per row, an element of each
        // vector per row.
        unsafe { self.launch::<T, _>(DiagonalCoarsen::ENTRY, lanes(n), &find)? };
        for (step, w) in [Address::NULL, steps[0].pointer()].into_iter().enumerate() {
            let (next, most) = (steps[step].pointer(), found.address(step));
            let bound = BoundCoarsen { matrix: of, n: rows, inverse: over, w, next, most };
            // SAFETY: bound_coarsen(ptr, cols, values, n, inverse, w, next, most), an element of each vector per row,
            // `w` none or what the step before has written.
            unsafe { self.launch::<T, _>(BoundCoarsen::ENTRY, each(n), &bound)? };
        }
        let mut read = [0; 3];
        found.read_at(0, &mut read)?;
        let [most @ .., row] = read;
        let unfit = (row != u64::from(u32::MAX)).then_some(row as usize);
        let best = most.iter().fold(f64::INFINITY, |best, &bits| best.min(f64::from_bits(bits)));
        let bound = if unfit.is_some() { f64::NAN } else { best.max(1.0) };
        Ok(Scaling { diagonal, inverse, bound, unfit })
    }

    fn scaled(&self, m: &CudaCsr<T>, left: &Vector<T>, right: Option<&Vector<T>>) -> Result<Converted<CudaCsr<T>>> {
        not_recorded(self, "a scaled matrix")?;
        expect_scales(m, left, right)?;
        let out = Buffer::<T>::uninit(self.stream(), m.nnz(), "a matrix's values")?;
        let parameters = scale(m, left, right, out.pointer());
        // SAFETY: scale_coarsen(ptr, cols, values, n, left, right, out), 8 lanes per row; lengths were compared, and
        // there is a value per entry.
        unsafe { self.launch::<T, _>(ScaleCoarsen::ENTRY, lanes(m.nrows()), &parameters)? };
        self.on_pattern(m, out).map(converted)
    }

    fn scaled_into(
        &self,
        m: &CudaCsr<T>,
        left: &Vector<T>,
        right: Option<&Vector<T>>,
        to: &mut CudaCsr<T>,
    ) -> Result<()> {
        not_recorded(self, "a scaled matrix")?;
        expect_scales(m, left, right)?;
        expect_len("scaled_into", "the values", to.nnz(), m.nnz())?;
        let parameters = scale(m, left, right, to.overwritten(self)?.pointer());
        // SAFETY: as in `scaled`: the numbers of entries were compared.
        unsafe { self.launch::<T, _>(ScaleCoarsen::ENTRY, lanes(m.nrows()), &parameters) }
    }

    fn copy_values(&self, from: &CudaCsr<T>, to: &mut CudaCsr<T>) -> Result<()> {
        not_recorded(self, "new values of a matrix")?;
        expect_len("copy_values", "the values", from.nnz(), to.nnz())?;
        to.overwritten(self)?.copy_first(from.arrays().2, from.nnz())
    }

    fn add_to_diagonal(&self, a: &mut CudaCsr<T>, d: &Vector<T>) -> Result<()> {
        not_recorded(self, "a sum with a diagonal")?;
        expect_len("add_to_diagonal", "d", d.len(), a.nrows())?;
        let values = a.overwritten(self)?.pointer();
        let Matrix { ptr, cols, .. } = matrix(a);
        let parameters = AddDiagonalCoarsen { ptr, cols, n: a.nrows() as u32, d: d.pointer(), values };
        // SAFETY: add_diagonal_coarsen(ptr, cols, n, d, values), an element of d per row.
        unsafe { self.launch::<T, _>(AddDiagonalCoarsen::ENTRY, each(a.nrows()), &parameters) }
    }
}
