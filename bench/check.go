package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// checkOutput makes sure that a program read the whole family: a reader that leaves something out is fast.
func checkOutput(program string, out []byte, r row, pids []string) error {
	switch program {
	case unit:
		n, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
		if err != nil {
			return fmt.Errorf("its output is no number: %w", err)
		}
		if least := r.fam.pages() * int64(len(pids)); n < least {
			return fmt.Errorf("read %d entries, the family has %d", n, least)
		}
	case auditPages, auditContents:
		return checkAudit(out, r.fam, pids)
	case auditLike:
		return checkAudit(out, *r.like, pids)
	case rollups:
		if got := strings.TrimSpace(string(out)); got != strconv.Itoa(len(pids)) {
			return fmt.Errorf("read %s processes, the family has %d", got, len(pids))
		}
	case smem:
		// One line for each process, its PID first.
		for _, pid := range pids {
			if !bytes.Contains(append([]byte("\n"), out...), []byte("\n"+padPID(pid, out)+" ")) {
				return fmt.Errorf("process %s is not in its output", pid)
			}
		}
	case pmap:
		for _, pid := range pids {
			if !bytes.Contains(append([]byte("\n"), out...), []byte("\n"+pid+":")) {
				return fmt.Errorf("process %s is not in its output", pid)
			}
		}
	default:
		return fmt.Errorf("nothing says what its output should be")
	}
	return nil
}

// padPID gives a PID as smem aligns it in its first column.
func padPID(pid string, out []byte) string {
	for line := range bytes.Lines(out) {
		if f := bytes.Fields(line); len(f) > 0 && string(f[0]) == pid {
			return string(line[:bytes.Index(line, f[0])]) + pid
		}
	}
	return pid
}

func (f family) pages() int64 { return int64(f.mib) << 20 / int64(os.Getpagesize()) }

// checkAudit holds the ledger against what the family did.
func checkAudit(out []byte, f family, pids []string) error {
	var a struct {
		Family []struct {
			PID       int    `json:"pid"`
			Reference int    `json:"reference_pid"`
			State     string `json:"state"`
			Pages     struct{ Shared, Copied, Held int64 }
		} `json:"family"`
	}
	if err := json.Unmarshal(out, &a); err != nil {
		return fmt.Errorf("its output: %w", err)
	}
	if len(a.Family) != len(pids) {
		return fmt.Errorf("%d processes, the family has %d", len(a.Family), len(pids))
	}
	// Each worker also has a few pages of its C library and stack.
	const few = 64
	for _, p := range a.Family {
		if p.State != "audited" || p.Pages.Held < f.pages() {
			return fmt.Errorf("process %d: %s, holds %d pages of %d", p.PID, p.State, p.Pages.Held, f.pages())
		}
		if p.Reference == 0 {
			continue
		}
		copied := f.pages() * int64(f.permille) / 1000
		if d := p.Pages.Copied - copied; d < -few || d > few {
			return fmt.Errorf("process %d: %d pages copied, it wrote %d", p.PID, p.Pages.Copied, copied)
		}
		if p.Pages.Shared < f.pages()-copied-few {
			return fmt.Errorf("process %d: %d pages shared of %d", p.PID, p.Pages.Shared, f.pages()-copied)
		}
	}
	return nil
}
