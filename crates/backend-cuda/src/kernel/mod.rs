//! The kernels as the host knows them: their parameters by name, and where they are.
//!
//! [`kernels!`] declares a structure of parameters together with the kernels that take it. A launch takes that
//! structure, so a missing, additional or mistyped parameter does not compile, and each value stands beside the name of
//! its parameter.
//!
//! Invariant: a declaration equals that of its kernel. The tests below compare number, order, sizes and alignments with
//! the embedded PTX, and names and types with the sources in `kernels/`. A kernel without a declaration fails them too.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;

use crate::memory::Address;
use crate::module::Source;

/// The largest number of parameters.
const MOST: usize = 24;

/// A type that a kernel may take as one parameter: plain data with the parameter's size and alignment.
///
/// # Safety
/// The type has the layout of its twin in the kernels, which has the same name, or the name without `Arg`.
pub(crate) unsafe trait Argument: Copy {}
// SAFETY: the same in both languages.
unsafe impl Argument for u32 {}
// SAFETY: the same in both languages.
unsafe impl Argument for u64 {}
// SAFETY: the same in both languages.
unsafe impl Argument for f64 {}
// SAFETY: a pointer, of any type, has 8 bytes at a multiple of 8.
unsafe impl Argument for Address {}

/// One parameter, or several in a row. [`parameters!`] and [`kernels!`] implement it for structures.
pub(crate) trait Parameters {
    /// The number of parameters.
    const COUNT: usize;
    /// Their addresses, in order.
    fn list<'a>(&'a self, to: &mut List<'a>);
    /// Their descriptions; `name` is that of the only one.
    #[cfg(test)]
    fn describe(name: &'static str, to: &mut Vec<Parameter>);
}

impl<A: Argument> Parameters for A {
    const COUNT: usize = 1;
    fn list<'a>(&'a self, to: &mut List<'a>) {
        to.at[to.len] = std::ptr::from_ref(self).cast_mut().cast();
        to.len += 1;
    }
    #[cfg(test)]
    fn describe(name: &'static str, to: &mut Vec<Parameter>) {
        to.push(Parameter { name, of: std::any::type_name::<A>(), size: size_of::<A>(), align: align_of::<A>() });
    }
}

/// Parameters of kernels for elements of type `T`.
pub(crate) trait ForElement<T>: Parameters {}

/// Parameters in the driver's form.
pub(crate) struct List<'a> {
    at: [*mut c_void; MOST],
    len: usize,
    of: PhantomData<&'a ()>,
}

impl<'a> List<'a> {
    pub(crate) fn of<P: Parameters>(parameters: &'a P) -> Self {
        let mut list = Self { at: [std::ptr::null_mut(); MOST], len: 0, of: PhantomData };
        parameters.list(&mut list);
        list
    }

    /// The address of each, valid as long as the parameters are borrowed.
    pub(crate) fn addresses(&mut self) -> &mut [*mut c_void] {
        &mut self.at[..self.len]
    }
}

/// A kernel that takes `P`: `name_type` of a text.
pub(crate) struct Entry<P> {
    pub(crate) source: &'static Source,
    pub(crate) name: &'static str,
    takes: PhantomData<fn(P)>,
}

impl<P: Parameters> Entry<P> {
    /// Only for [`kernels!`], whose declarations are compared with the kernels.
    pub(crate) const fn declared(source: &'static Source, name: &'static str) -> Self {
        assert!(P::COUNT <= MOST, "more parameters than a list has room for");
        Self { source, name, takes: PhantomData }
    }
}

impl<P> Clone for Entry<P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P> Copy for Entry<P> {}
impl<P> fmt::Debug for Entry<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Declares structures of parameters that several kernels have in a row.
macro_rules! parameters {
    ($($(#[$meta:meta])* $vis:vis struct $Name:ident $(<$T:ident>)? { $($field:ident: $Type:ty),+ $(,)? })+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        $vis struct $Name $(<$T>)? { $($vis $field: $Type),+ }

        impl $(<$T: ::spandrel_formats::Real>)? $crate::kernel::Parameters for $Name $(<$T>)? {
            const COUNT: usize = 0 $(+ <$Type as $crate::kernel::Parameters>::COUNT)+;
            fn list<'a>(&'a self, to: &mut $crate::kernel::List<'a>) {
                $($crate::kernel::Parameters::list(&self.$field, to);)+
            }
            #[cfg(test)]
            fn describe(_: &'static str, to: &mut Vec<$crate::kernel::Parameter>) {
                $(<$Type as $crate::kernel::Parameters>::describe(stringify!($field), to);)+
            }
        }
    )+};
}
pub(crate) use parameters;

/// Declares the kernels of a file: `struct NAME { parameters } in SOURCE { CONSTANT: "verb_noun", ... }`, with
/// `NAME<T>` if a parameter depends on the element type. Each constant is an [`Entry`] of the structure.
macro_rules! kernels {
    ($(
        $(#[$meta:meta])*
        $vis:vis struct $Name:ident $(<$T:ident>)? { $($field:ident: $Type:ty),+ $(,)? }
        in $($SOURCE:ident { $($(#[$on:meta])* $ENTRY:ident: $name:literal),+ $(,)? })|+
    )+) => {
        $(
            $crate::kernel::parameters! { $(#[$meta])* $vis struct $Name $(<$T>)? { $($field: $Type),+ } }
            $crate::kernel::kernels! { @element $Name $(<$T>)? }
            impl $(<$T: ::spandrel_formats::Real>)? $Name $(<$T>)? {
                $($(
                    $(#[$on])*
                    $vis const $ENTRY: $crate::kernel::Entry<Self> =
                        $crate::kernel::Entry::declared(&$crate::module::$SOURCE, $name);
                )+)+
            }
        )+
        /// The declarations of this file.
        #[cfg(test)]
        pub(crate) fn declared(to: &mut Vec<$crate::kernel::Declared>) {
            $($crate::kernel::kernels! { @declare to, $Name $(<$T>)?, $($($ENTRY)+)+ })+
        }
    };
    (@element $Name:ident <$T:ident>) => {
        impl<$T: ::spandrel_formats::Real> $crate::kernel::ForElement<$T> for $Name<$T> {}
    };
    (@element $Name:ident) => {
        impl<T: ::spandrel_formats::Real> $crate::kernel::ForElement<T> for $Name {}
    };
    (@declare $to:ident, $Name:ident <$T:ident>, $($ENTRY:ident)+) => {
        $($to.push($crate::kernel::Declared::new::<$Name<f32>, $Name<f64>>($Name::<f32>::$ENTRY));)+
    };
    (@declare $to:ident, $Name:ident, $($ENTRY:ident)+) => {
        $($to.push($crate::kernel::Declared::new::<$Name, $Name>($Name::$ENTRY));)+
    };
}
pub(crate) use kernels;

/// A declared parameter.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    /// Its type, with its path.
    pub(crate) of: &'static str,
    pub(crate) size: usize,
    pub(crate) align: usize,
}

/// A declared kernel: its parameters for f32 and for f64.
#[cfg(test)]
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub(crate) stem: &'static str,
    pub(crate) name: &'static str,
    pub(crate) parameters: [(&'static str, Vec<Parameter>); 2],
}

#[cfg(test)]
impl Declared {
    pub(crate) fn new<F32: ForElement<f32>, F64: ForElement<f64>>(entry: Entry<F32>) -> Self {
        let (mut narrow, mut wide) = (Vec::new(), Vec::new());
        F32::describe("", &mut narrow);
        F64::describe("", &mut wide);
        Self {
            stem: entry.source.stem,
            name: entry.name,
            parameters: [
                (<f32 as spandrel_formats::Real>::NAME, narrow),
                (<f64 as spandrel_formats::Real>::NAME, wide),
            ],
        }
    }
}

#[cfg(test)]
mod signature;
#[cfg(test)]
mod tests;
