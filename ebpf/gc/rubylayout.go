package gc

import (
	"slices"
	"strconv"
	"strings"
)

// rubyLayout says which bits the flags of struct rb_objspace have in a release, and how far before profile.count
// profile.major_gc_count lies (profile.minor_gc_count is the word before that). Bit-fields of GCC and Clang on x86-64 begin
// at the lowest bit.
type rubyLayout struct {
	releases  string // major.minor
	patches   [2]int // first and last, inclusive
	during    uint8  // bit of during_gc
	minor     uint8  // bit of during_minor_gc
	moving    Bits   // sweeping and compacting; zero: cannot be told
	majorBack uint64 // bytes
}

// Mode is the lowest two bits of the flags in all of them (enum gc_mode).
const (
	modeMask       = 3
	modeNone       = 0
	modeMarking    = 1
	modeSweeping   = 2
	modeCompacting = 3 // since 3.2
)

// compacting is the condition of releases before 3.2: a sweep with during_compacting, the bit after during_gc.
var compacting = Bits{Mask: modeMask | 1<<6, Want: modeSweeping | 1<<6}

const allPatches = 1 << 20

// rubyLayouts, from gc.c (gc/default/default.c since 3.4) of every release, compared one by one: tags v2_7_0 to v2_7_8,
// v3_0_0 to v3_0_7, v3_1_0 to v3_1_7, v3_2_0 to v3_2_11, v3_3_0 to v3_3_11, v3_4_0 to v3_4_9, and
// 99e9ca1f40e7811fd4b162e6c4a7566d3d6bdf11, the last commit before 4.1 was begun, for 4.0. A release that is not here is read
// without these bits; so 4.1, whose flags are others.
//
// 2.7 moves objects (GC.compact) outside of during_gc, which is not seen. 3.0.0 to 3.0.3 have two bits during_compacting.
var rubyLayouts = []rubyLayout{
	{"2.7", [2]int{0, allPatches}, 5, 9, Bits{}, 40},
	{"3.0", [2]int{0, 3}, 5, 10, Bits{}, 48},
	{"3.0", [2]int{4, allPatches}, 5, 9, compacting, 48},
	{"3.1", [2]int{0, allPatches}, 5, 9, compacting, 48},
	{"3.2", [2]int{0, allPatches}, 5, 9, Bits{modeMask, modeCompacting}, 48},
	{"3.3", [2]int{0, allPatches}, 5, 10, Bits{modeMask, modeCompacting}, 48},
	{"3.4", [2]int{0, allPatches}, 5, 10, Bits{modeMask, modeCompacting}, 48},
	{"4.0", [2]int{0, allPatches}, 5, 10, Bits{modeMask, modeCompacting}, 48},
}

// layoutOf finds the layout of a version as ruby_version has it: "3.3.8".
func layoutOf(version string) (rubyLayout, bool) {
	parts := strings.Split(version, ".")
	if len(parts) != 3 {
		return rubyLayout{}, false
	}
	patch, err := strconv.Atoi(parts[2])
	if err != nil {
		return rubyLayout{}, false
	}
	i := slices.IndexFunc(rubyLayouts, func(l rubyLayout) bool {
		return l.releases == parts[0]+"."+parts[1] && patch >= l.patches[0] && patch <= l.patches[1]
	})
	if i < 0 {
		return rubyLayout{}, false
	}
	return rubyLayouts[i], true
}

// bit is the condition that one bit is set.
func bit(n uint8) Bits { return Bits{1 << n, 1 << n} }
