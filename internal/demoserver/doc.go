// Package demoserver is a small forking server of known behaviour: a master forks three workers, master and workers then
// write, read and give up given pages of given regions, and the server says what must be seen of it from outside. It is
// what `cowaudit demo` measures, and an oracle for tests.
//
// The server is the running program itself, started again. A Go program cannot go on in a forked child, since the child
// has one thread and the runtime needs several; but a child that never enters the runtime again needs none of it: see
// package child.
//
// What must be seen is worked out by a model of fork and copy-on-write (model.go) from the orders that were carried out,
// not written down as constants, and not by reading page tables.
package demoserver
