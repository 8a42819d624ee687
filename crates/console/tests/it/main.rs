//! The console over an API whose answers a test decides.

mod hostile;
mod pages;
mod safety;
mod stub;
mod timeline;
