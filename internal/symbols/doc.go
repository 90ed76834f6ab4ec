// Package symbols names code addresses of other processes.
//
// # From an address to a name
//
//	address in the process      /proc/PID/maps: which mapping covers it, which file, from which offset
//	offset in the file          the file's program headers: the segment that has the offset
//	link-time (ELF) address     its symbol tables: the symbol whose [value, value+size) covers it
//
// The three numbers differ (a segment's p_vaddr need not be its p_offset, a program need not be position-independent), so
// none stands for another. What no symbol covers has no name: it is the module and the link-time address, never the nearest
// symbol below. A symbol of size 0 (hand-written assembly) covers what lies up to the next symbol of its section, only in a
// table that has the local symbols too, and is marked.
//
// # Which file
//
// The file is the one that is mapped: it is opened through /proc/PID/map_files (Documentation/filesystems/proc.rst; 3.3,
// CAP_SYS_ADMIN or, since 5.9, CAP_CHECKPOINT_RESTORE), which also reaches what was deleted or replaced. Where that is
// refused, the path in maps is tried in the process' own root and in ours. In both ways the file must be the one that maps
// names, by inode (and device, for a path); where those say something else, as they do on overlayfs and btrfs, the build-id
// in the process' memory decides. A file that cannot be shown to be the right one is not used.
//
// # Where symbols come from
//
// The file's own .symtab and .dynsym; where there is no .symtab, a separate debug file: by build-id in the debug folders of
// the process' root and of ours, else by .gnu_debuglink (CRC32 checked); else .gnu_debugdata in the file itself. A debug file
// must have the same build-id where both have one, and its code at the same addresses. The vDSO is read from the process'
// memory (/proc/PID/mem, PTRACE_MODE_ATTACH). Code in anonymous memory is named by the map file that a JIT compiler writes for
// perf (tools/perf/Documentation/jit-interface.txt), if it belongs to the user of the process or to root.
//
// # Cost and trust
//
// A file is opened and read once, whatever the number of processes; tables are read when the first address in them is asked
// for. Until [Resolver.Close] a descriptor for each file, and one for each root folder, stays open: the inode numbers by which
// files are told apart cannot be given to other files so, and processes may end before they are asked about. Files of a
// process, and the map files in its /tmp, are foreign bytes: sizes are bounded, only regular files are opened, and paths do
// not lead out of the root they are looked up in (openat2, 5.6).
package symbols
