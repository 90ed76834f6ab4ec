// Package forktest is the controlled experiment: it starts a subject, has it load an application, settle, and fork
// workers, and captures the pages of parent and workers before and after each event in the workers, several times over.
// [Run] does it all.
//
// # What is started
//
// The subject is a command ("ruby3.4", "chroot DIR ruby3.3", a wrapper script, a shim). Its standard input is one end of a
// socket pair. For Ruby and Python it gets two more words, -e or -c and a program of one line that reads the harness proper
// from that socket and evaluates it: nothing need exist in the subject's root but the interpreter. docs/protocol.md has the
// line protocol that follows, which other programs can speak as well ([RuntimeScript]).
//
//	cowaudit                        parent                worker 1
//	   |  harness (Ruby, Python)      |                      |
//	   |----------------------------->|                      |
//	   |<-- hello --------------------|                      |
//	   |--- load, preload, settle, -->|                      |
//	   |<-- ... warmup, fork ---------|-------- fork ------->|
//	   |<-- worker, ready ------------|                      |
//	   |--- event null (3 times) --------------------------->|
//	   |<-- done --------------------------------------------|
//	   |    capture                   |                      |
//	   |--- event null ------------------------------------->|
//	   |<-- done --------------------------------------------|
//	   |    capture                   |                      |
//	   |--- event first_major_gc --------------------------->|
//	   |    ...                       |                      |
//
// One capture between two events serves as the end of one and the beginning of the next. A worker is compared with its
// parent, never with its own past.
//
// # What holds still
//
// While cowaudit captures, parent and workers block in read(2). A worker has a pipe of its own for its orders, so that none
// wakes its parent or its siblings; it reads them into a buffer that it keeps, and has done so three times before the first
// capture. Its collector is off but for the events. What is left is measured by the null event.
//
// # Who copied
//
// With [Config.Trace] the page faults of parent and workers are traced as well. The tracer is attached when the application
// is loaded and settled, before the fork: what attaching itself writes is then the parent's, and all of it lies before the
// first capture. What the tracer copies in the workers all the same is in the null event, like everything that is not the
// event's. The kernel's delay accounting is switched on before the subject starts, since it counts for tasks forked later only,
// and put back at the end.
//
// # What is left behind
//
// Nothing. The subject runs in a session of its own, and whatever happens, what descends from it is killed and reaped before
// Run returns. If this process is killed, what it started gets SIGKILL (PR_SET_PDEATHSIG), and whatever that forked finds its
// channel or its pipe closed as soon as it looks: a worker after its event, a program behind a wrapper after its load.
package forktest
