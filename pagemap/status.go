package pagemap

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Status is what cowaudit uses of /proc/PID/status (Documentation/filesystems/proc.rst, table 1-2; fs/proc/array.c,
// proc_pid_status). Everybody may read it.
type Status struct {
	TGID   PID       // the process that a thread belongs to
	UID    [4]uint32 // real, effective, saved, file system
	NSPID  []PID     // in each pid namespace from that of the /proc mount inward (NSpid, 4.1)
	VmRSS  Bytes     // 0 without an address space
	VmHWM  Bytes     // the most that VmRSS ever was
	HasMM  bool      // the kernel prints the Vm lines only for what has an address space
	VmSwap Bytes     // 2.6.34
}

// Status reads /proc/PID/status.
func (f FS) Status(pid PID) (Status, error) {
	b, err := f.read(pid, "status", nil)
	if err != nil {
		return Status{}, err
	}
	s, err := ParseStatus(b)
	if err != nil {
		return Status{}, fmt.Errorf("read status of %d: %w", pid, err)
	}
	return s, nil
}

// ParseStatus parses a status file. The name in it is escaped by the kernel, so lines are lines.
func ParseStatus(b []byte) (Status, error) {
	var s Status
	for line := range bytes.Lines(b) {
		name, value, ok := bytes.Cut(line, []byte{':'})
		if !ok {
			continue
		}
		var err error
		switch string(name) {
		case "Tgid":
			err = numbers(value, maxPID, func(_ int, v uint64) { s.TGID = PID(v) })
		case "Uid":
			err = numbers(value, 1<<32-1, func(i int, v uint64) {
				if i < len(s.UID) {
					s.UID[i] = uint32(v)
				}
			})
		case "NSpid":
			err = numbers(value, maxPID, func(_ int, v uint64) { s.NSPID = append(s.NSPID, PID(v)) })
		case "VmRSS":
			s.HasMM = true
			s.VmRSS, err = kiloBytes(bytes.TrimSpace(value))
		case "VmHWM":
			s.VmHWM, err = kiloBytes(bytes.TrimSpace(value))
		case "VmSwap":
			s.VmSwap, err = kiloBytes(bytes.TrimSpace(value))
		}
		if err != nil {
			return s, fmt.Errorf("%w: status: %.80q", err, line)
		}
	}
	if s.TGID == 0 {
		return s, fmt.Errorf("%w: status without Tgid", ErrFormat)
	}
	return s, nil
}

func numbers(value []byte, limit uint64, f func(i int, v uint64)) error {
	for i, w := range bytes.Fields(value) {
		v, ok := decimal(w)
		if !ok || v > limit {
			return ErrFormat
		}
		f(i, v)
	}
	return nil
}

// maxCommand is where a command line is cut, in bytes.
const maxCommand = 4096

// Cmdline reads /proc/PID/cmdline: the arguments joined by blanks, cut at 4096 bytes, without anything that could move a
// terminal's cursor. Empty for zombies and kernel threads. A process can write what it likes there.
func (f FS) Cmdline(pid PID) (string, error) {
	h, err := os.Open(f.file(pid, "cmdline"))
	if err != nil {
		return "", readError(pid, "cmdline", err)
	}
	defer h.Close()
	b, err := readTo(h, nil, maxCommand+utf8.UTFMax)
	if err != nil {
		return "", readError(pid, "cmdline", err)
	}
	b = bytes.TrimRight(b, "\x00")
	s := printable(strings.ReplaceAll(string(b), "\x00", " "))
	if len(s) > maxCommand {
		n := maxCommand
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n]
	}
	return s, nil
}

// printable puts a question mark in the place of each rune that does not show as itself on one line, and of each byte
// that is not UTF-8.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// Exe reads where /proc/PID/exe points, byte for byte as the kernel gives it: " (deleted)" may be part of the name. It
// needs PTRACE_MODE_READ; a refusal is fs.ErrPermission. Zombies and kernel threads: [ErrNoMM].
func (f FS) Exe(pid PID) (string, error) {
	s, err := os.Readlink(f.file(pid, "exe"))
	if err != nil {
		return "", f.noMM(pid, "exe", readError(pid, "exe", err))
	}
	return s, nil
}

// sameExe reports whether two processes run the same file; known is false when one of the two cannot be seen.
func (f FS) sameExe(a, b PID) (same, known bool) {
	x, err := os.Stat(f.file(a, "exe"))
	y, err2 := os.Stat(f.file(b, "exe"))
	if errors.Join(err, err2) != nil {
		return false, false
	}
	return os.SameFile(x, y), true
}
