package ebpf

// Needs clang 14 or later, llvm-strip and libbpf's headers (Debian: clang, llvm, libbpf-dev). What it makes is committed:
// building needs none of them.
//go:generate go tool bpf2go -target bpfel -no-global-types -cflags "-O2 -g -mcpu=v3 -Wall -Werror" -type fault_record -type fault_entry -type space_record -type region_record -type exit_record -type gc_record -type entry -type collector -type count_key -type count -type user_stack -type bits -type probe -type kind -type detail -type phase -type step -type record_type -type cause -type loss -type gc_event faults bpf/faults.bpf.c
