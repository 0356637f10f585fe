//! harness
fn main(){}
