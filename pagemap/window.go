package pagemap

// WindowPages is the number of pages in a full window. Windows lie at multiples of it, so that windows of two captures meet.
const WindowPages = 1024

// Window is one stretch of addresses read from all processes of a family at nearly the same moment: each process' entries
// were read between two readings of its reference's, which agree.
type Window struct {
	Start Addr  // a multiple of WindowPages pages
	Rows  []Row // one for each process, in the order of Family.Processes
}

// Row is one process' part of a window. All slices have WindowPages elements or are nil.
type Row struct {
	// Entries is nil where the process maps nothing in the window. Addresses that it does not map read 0.
	Entries []Entry
	// Flags holds, where a result needs them, the frame's flags; FlagsUnread elsewhere. Nil: none were read.
	Flags []KFlags
	// Counts holds, where a result needs it, the frame's kpagecount; CountUnread elsewhere. Nil: none were read.
	Counts []int32
	// Words holds how many of the page's 8-byte words differ from the reference's page at the same address (0 to page
	// size / 8); WordsUnread elsewhere. Nil: none were compared.
	Words []int16
	// Unstable marks pages whose entry, or whose reference's entry, kept changing while it was read. Nil: none.
	Unstable []bool
}

// Values for what was not read.
const (
	CountUnread int32 = -1
	WordsUnread int16 = -1
)

// Visitor takes the windows of a family. A window and its slices are valid during the call only.
type Visitor interface {
	Window(*Window) error
}

// Source gives the facts of a family: a live capture, or a snapshot read from a file.
type Source interface {
	// Family gives the processes. Mappings, states and warnings are final only after Walk.
	Family() *Family
	// Walk hands each window that holds a page to exactly one visitor. It may call newVisitor several times and use the
	// visitors in parallel, each from one goroutine; windows reach one visitor in ascending order of address.
	Walk(newVisitor func() Visitor) error
}
