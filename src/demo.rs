//! stub
use crate::clock::Clock;
use crate::error::Result;
use std::path::Path;
/// stub
pub struct Demo(tempfile::TempDir);
/// stub
pub struct Writers;
impl Demo {
    /// s
    pub fn config(&self) -> &Path {
        self.0.path()
    }
    /// s
    pub fn folder(&self) -> &Path {
        self.0.path()
    }
    /// s
    pub fn start_writers(&self) -> Writers {
        Writers
    }
}
/// s
pub fn build(_dir: &Path, _n: Option<usize>, _c: &dyn Clock) -> Result<Demo> {
    Err(crate::error::Error::new(crate::error::Kind::Internal, ""))
}
/// s
pub fn build_temporary(_n: Option<usize>, _c: &dyn Clock) -> Result<Demo> {
    build(Path::new(""), None, &crate::clock::System)
}
