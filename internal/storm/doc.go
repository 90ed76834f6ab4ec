// Package storm is a soak test: it audits a family of processes that fork, exit, exec, map, unmap, move, protect and advise
// memory without a pause, and asks of each result that it adds up, of the family that nothing was stopped, and of the
// auditor that it keeps no descriptor and no memory.
//
// COWAUDIT_SOAK is its length (60s), three seconds if it is not set. `make soak` sets it.
package storm
