//! What a run has shown: figures, and a page with a picture.

mod figures;
mod page;
mod picture;

pub use figures::{Figures, Latencies};
pub use page::{Run, latencies, sizes, write};
