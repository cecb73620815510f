//! Durable map stores for the monitor.
