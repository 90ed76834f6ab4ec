package ebpf

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"time"
	"unsafe"

	"cowaudit/pagemap"
)

// gatherer turns the kernel's records into a Trace. It is not safe for concurrent use: the Tracer's lock guards it.
type gatherer struct {
	t       *Tracer
	buf     []byte
	spaces  map[SpaceID]*space
	regions map[RegionID]*region
	// regionsOf are the same by space: a trace may have thousands of spaces
	regionsOf map[SpaceID][]*region
	counts    map[countKey]*Tally
	faults    []rawFault
	names     *names
	waiting   map[SpaceID]bool // processes that are traced from their next exec on
	last      time.Duration    // of the latest record
	started   time.Duration    // when a program was seen to start
	turn      uint32           // which table of counts is in use
	turned    time.Duration    // since when
	folded    bool             // the collections are not told apart any more
	late      int64            // faults that got their region after the trace
	// visited spaces of this reading: something about them is new
	fresh map[SpaceID]bool
}

// space is an address space while it is traced.
type space struct {
	Space
	read  bool          // its mappings have been read, or can be no more
	code  string        // the files of its code, as they were when its collector was looked for
	found bool          // its collector has been looked for
	again bool          // and is to be looked for again
	retry time.Duration // not before this

	superseded bool // the process has called exec since

	lastExit time.Duration // of one of its threads
}

// region is a mapping as the kernel's side told of it.
type region struct {
	Region
	file bool
}

// countKey tells faults apart that are counted together.
type countKey struct {
	Space  SpaceID
	Region RegionID
	IP     uint64
	GC     GC
	Stack  uint64
	Kind   Kind
	Detail Detail
}

// rawFault is a fault whose instruction has no name yet.
type rawFault struct {
	time   time.Duration
	addr   uint64
	ip     uint64
	space  SpaceID
	region RegionID
	thread pagemap.PID
	gc     GC
	stack  uint64
	kind   Kind
	detail Detail
	order  uint8
	code   uint8
}

func newGatherer(t *Tracer) *gatherer {
	return &gatherer{
		t: t, spaces: map[SpaceID]*space{}, regions: map[RegionID]*region{}, regionsOf: map[SpaceID][]*region{}, counts: map[countKey]*Tally{},
		names: newNames(&t.o), fresh: map[SpaceID]bool{}, waiting: map[SpaceID]bool{},
	}
}

// as views a record of the ring buffer, whose entries are aligned to 8 bytes, as its C type.
func as[T any](b []byte) (*T, bool) {
	var zero T
	if len(b) < int(unsafe.Sizeof(zero)) {
		return nil, false
	}
	return (*T)(unsafe.Pointer(&b[0])), true
}

// since gives a time of the kernel's monotonic clock on the trace's.
func (g *gatherer) since(mono uint64) time.Duration { return time.Duration(mono - g.t.mono) }

// record takes in one record.
func (g *gatherer) record(b []byte) {
	if len(b) == 0 {
		return
	}
	switch faultsRecordType(b[0]) {
	case faultsRecordTypeRECORD_FAULT:
		g.batch(b)
	case faultsRecordTypeRECORD_SPACE:
		if r, ok := as[faultsSpaceRecord](b); ok {
			g.spaceRecord(r)
		}
	case faultsRecordTypeRECORD_REGION:
		if r, ok := as[faultsRegionRecord](b); ok {
			g.regionRecord(r)
		}
	case faultsRecordTypeRECORD_EXIT:
		if r, ok := as[faultsExitRecord](b); ok {
			g.exit(r)
		}
	}
}

// batch takes in the faults of one record, which ends behind the last that is in use.
func (g *gatherer) batch(b []byte) {
	var r faultsFaultRecord
	head := int(unsafe.Offsetof(r.Faults))
	if len(b) < head {
		return
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Sizeof(r)), b)
	for i := range min(int(r.N), len(r.Faults), (len(b)-head)/int(unsafe.Sizeof(r.Faults[0]))) {
		g.fault(&r, &r.Faults[i])
	}
}

func (g *gatherer) fault(r *faultsFaultRecord, e *faultsFaultEntry) {
	// Where it has no time it has that of the record before: it was decided after that.
	at := g.last
	if e.Time != 0 {
		at = g.since(e.Time)
		g.last = max(g.last, at)
	}
	f := rawFault{
		time: at, addr: e.Addr, ip: e.Ip, space: SpaceID(r.Space), region: RegionID(e.Region), thread: pagemap.PID(r.Tid),
		gc: GC{Phase(e.Gc.Phase), Step(e.Gc.Step), e.Gc.Seq}, stack: e.Stack, kind: Kind(e.Kind), detail: Detail(e.Detail),
		order: e.Order, code: e.Error,
	}
	g.faults = append(g.faults, f)
	if g.count(&f) {
		g.fresh[f.space] = true
	}
}

// count counts a fault, and reports the first of its like.
func (g *gatherer) count(f *rawFault) bool {
	k := countKey{f.space, f.region, f.ip, f.gc, f.stack, f.kind, f.detail}
	n := g.counts[k]
	if n == nil {
		n = new(Tally)
		g.counts[k] = n
	}
	n.Faults++
	n.Pages += 1 << f.order
	return n.Faults == 1
}

func (g *gatherer) spaceRecord(r *faultsSpaceRecord) {
	s := Space{
		ID: SpaceID(r.Space), Parent: SpaceID(r.Parent), Cause: Cause(r.Cause), Process: pagemap.Identity{PID: pagemap.PID(r.Tid)},
		Began: g.since(r.Time), Command: comm(&r.Comm),
	}
	// A child that shares its parent's space until it calls exec (vfork, posix_spawn) does not end it.
	if p := g.spaces[s.Parent]; p != nil && s.Cause == CauseExec && p.Process.PID == s.Process.PID {
		p.Ended, p.superseded = s.Began, true
	}
	if s.Cause == CauseExec {
		g.started = g.t.clock()
	}
	if g.waiting[s.Parent] {
		delete(g.waiting, s.Parent)
		s.Parent, s.Cause = 0, CauseStart
	}
	g.newSpace(s)
}

// comm is a task's name: 15 bytes at most, ended by a zero.
func comm(c *[16]int8) string {
	b := make([]byte, 0, len(c))
	for _, x := range c {
		if x == 0 {
			break
		}
		b = append(b, byte(x))
	}
	return string(b)
}

func (g *gatherer) newSpace(s Space) {
	g.spaces[s.ID] = &space{Space: s}
	g.fresh[s.ID] = true
}

func (g *gatherer) exit(r *faultsExitRecord) {
	// Any thread may be the last one, the first one included, so this is the end only if the process is gone: see ends.
	if s := g.spaces[SpaceID(r.Space)]; s != nil && s.Process.PID == pagemap.PID(r.Tgid) {
		s.lastExit = g.since(r.Time)
	}
}

// Bits of a region's flags: include/linux/mm.h, and bpf/faults.h for the last.
const (
	vmRead     = 1 << 0
	vmWrite    = 1 << 1
	vmExec     = 1 << 2
	vmShared   = 1 << 3
	regionFile = 1 << 63
)

func (g *gatherer) regionRecord(r *faultsRegionRecord) {
	perms := []byte("---p")
	for i, c := range []byte("rwx") {
		if r.Flags&(1<<i) != 0 {
			perms[i] = c
		}
	}
	if r.Flags&vmShared != 0 {
		perms[3] = 's'
	}
	m := pagemap.Mapping{Start: pagemap.Addr(r.Start), End: pagemap.Addr(r.End), Perms: string(perms)}
	n := &region{Region: Region{ID: RegionID(r.Region), Space: SpaceID(r.Space), Mapping: m}}
	if n.file = r.Flags&regionFile != 0; n.file {
		n.Mapping.Offset = r.Pgoff * uint64(os.Getpagesize())
	}
	g.addRegion(n)
	if s := g.spaces[SpaceID(r.Space)]; s != nil {
		s.read = false
		g.fresh[s.ID] = true
	}
}

func (g *gatherer) addRegion(r *region) {
	g.regions[r.ID] = r
	g.regionsOf[r.Space] = append(g.regionsOf[r.Space], r)
}

// visit looks at the processes about which the last records said something new, while they are still there: their
// command, their mappings, the files of their code.
func (g *gatherer) visit() {
	for id := range g.fresh {
		if s := g.spaces[id]; s != nil {
			g.look(s)
		}
	}
	clear(g.fresh)
	g.t.collectors.retry(g)
}

// identify reads who a process is.
func (g *gatherer) identify(id SpaceID) {
	s := g.spaces[id]
	if s == nil {
		return
	}
	if st, err := g.t.o.FS.Stat(s.Process.PID); err == nil {
		s.Process.Start = st.Start
		s.Command = st.Comm
	}
	if c, err := g.t.o.FS.Cmdline(s.Process.PID); err == nil && c != "" {
		s.Command = c
	}
}

// look reads a space's mappings when they may have changed; where the process is gone, a forked one has its parent's.
func (g *gatherer) look(s *space) {
	if s.read {
		return
	}
	s.read = true
	maps, err := g.t.o.FS.Maps(s.Process.PID)
	st, serr := g.t.o.FS.Stat(s.Process.PID)
	// The same process still, and not one exec further: a later space of this PID means that.
	same := serr == nil && (s.Process.Start == 0 || s.Process.Start == st.Start) && !s.superseded
	if err != nil || !same || len(maps) == 0 {
		if s.Mappings == nil {
			g.inherit(s)
		}
		return
	}
	g.identify(s.ID)
	s.Mappings = maps
	g.names.space(s.ID, s.Process.PID)
	g.nameRegions(s)
	g.collector(s)
}

// collector looks for a space's garbage collector: when it is new, and when its code has changed since. A forked process
// has its parent's, which the kernel's side has handed on.
func (g *gatherer) collector(s *space) {
	code := codeFiles(s.Mappings)
	if s.code == code {
		return
	}
	s.code = code
	if p := g.spaces[s.Parent]; s.Cause == CauseFork && !s.found && p != nil && p.found && !p.again && p.code == code {
		s.found, s.Provider = true, p.Provider
		return
	}
	if s.found && s.Provider.Name != "none" {
		return
	}
	s.again = true
	g.t.collectors.find(s)
}

// codeFiles names the files that a process has mapped for execution.
func codeFiles(maps []pagemap.Mapping) string {
	var b strings.Builder
	for i := range maps {
		if maps[i].Inode != 0 && strings.Contains(maps[i].Perms, "x") {
			b.WriteString(maps[i].Path)
			b.WriteByte(0)
		}
	}
	return b.String()
}

func (g *gatherer) inherit(s *space) {
	p := g.spaces[s.Parent]
	if s.Cause != CauseFork || p == nil || p.Mappings == nil {
		return
	}
	s.Mappings = p.Mappings
	if s.Command == "" {
		s.Command = p.Command
	}
	g.names.inherit(s.ID, p.ID)
	g.nameRegions(s)
}

// nameRegions gives a space's regions the path of the mapping that /proc shows there now, if it is the same one.
func (g *gatherer) nameRegions(s *space) {
	for _, r := range g.regionsOf[s.ID] {
		if !r.Named {
			nameRegion(r, s.Mappings)
		}
	}
}

// ends says when the spaces ended of which a thread did and that have none any more. A zombie has none.
func (g *gatherer) ends() {
	for _, s := range g.spaces {
		if s.lastExit == 0 || s.Ended != 0 {
			continue
		}
		st, err := g.t.o.FS.Stat(s.Process.PID)
		if err != nil || s.Process.Start != 0 && st.Start != s.Process.Start || st.State == 'Z' || st.State == 'X' {
			s.Ended = s.lastExit
		}
	}
}

// finish gives the trace.
func (g *gatherer) finish(end time.Duration, missed int64) (*Trace, error) {
	k := g.t.kernel.coll
	tr := &Trace{
		Began: g.t.began, Duration: end, PageSize: pagemap.Bytes(os.Getpagesize()), Variant: g.t.kernel.variant, Quiet: g.t.quiet,
		Warnings: g.t.warnings,
	}
	tr.Host, tr.Kernel = host(g.t.o.FS)
	if err := g.kernelCounts(); err != nil {
		return nil, err
	}
	var err error
	if tr.Totals, err = totals(k.Maps["totals"]); err != nil {
		return nil, err
	}
	if g.folded {
		tr.Warnings = append(tr.Warnings, pagemap.Warning{
			Code: "collections_folded", Text: "too many different faults to tell the collections apart: they are counted together",
			Remedy: "trace for a shorter time",
		})
	}
	if err := losses(k.Maps["losses"], &tr.Lost); err != nil {
		return nil, err
	}
	tr.Lost.Missed = missed
	g.ends()
	g.lookAgain()
	for _, s := range g.spaces {
		tr.Spaces = append(tr.Spaces, s.Space)
	}
	slices.SortFunc(tr.Spaces, func(a, b Space) int { return cmp.Compare(a.ID, b.ID) })
	g.split()
	tr.Lost.Regions = max(tr.Lost.Regions-g.late, 0)
	for _, r := range g.regions {
		tr.Regions = append(tr.Regions, r.Region)
	}
	slices.SortFunc(tr.Regions, func(a, b Region) int { return cmp.Compare(a.ID, b.ID) })
	if err := g.resolve(tr); err != nil {
		return nil, err
	}
	tr.Warnings = append(tr.Warnings, g.names.problems()...)
	return tr, nil
}
