package symbols

import "strings"

// Stack names a chain of return addresses, innermost first: the first is an instruction, each other one the address after a
// call, so that the call itself is looked up, one byte before. It ends at the first address that is in no executable mapping:
// whatever follows is no code. The innermost address is always there, named or not.
//
// cut says that the chain does not reach the function that a thread begins with: code without frame pointers, a chain longer
// than was recorded, or no names to tell by.
func (s *Space) Stack(addrs []uint64) (frames []Frame, cut bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i, a := range addrs {
		at := a
		if i > 0 {
			if a == 0 {
				break
			}
			at--
		}
		f := s.lookup(at)
		f.Addr = a
		if f.Module == "" && i > 0 {
			break
		}
		frames = append(frames, f)
		if f.Module == "" {
			break
		}
	}
	return frames, len(frames) == 0 || !begins(&frames[len(frames)-1])
}

// begins reports the functions that a thread begins with: those of glibc and musl, and Go's.
func begins(f *Frame) bool {
	switch f.Function {
	case "_start", "_dl_start", "_dl_start_user", "_dlstart", "_dlstart_c", "_start_c", "__libc_start_call_main", "start_thread",
		"clone", "clone3", "__clone", "__clone3", "__clone_internal", "runtime.goexit", "runtime.goexit.abi0", "runtime.rt0_go", "runtime.rt0_go.abi0":
		return true
	case "start", "libc_start_main_stage2": // musl's pthread_create.c and __libc_start_main.c
		return strings.Contains(f.Module, "musl")
	}
	return strings.HasPrefix(f.Function, "__libc_start_main")
}
