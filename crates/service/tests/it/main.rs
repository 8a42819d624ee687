//! The shared parts as a program uses them: settings, a server on a real socket, real signals.

#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod log;
#[cfg(test)]
mod printing;
#[cfg(test)]
mod security;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod vcap;
