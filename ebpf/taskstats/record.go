package taskstats

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cowaudit/pagemap"
)

// record is what cowaudits of one boot tell each other of the setting.
type record struct {
	Boot    string        `json:"boot_id"`
	Clock   string        `json:"time_namespace"` // whose CLOCK_BOOTTIME the times are of (5.6)
	OnSince time.Duration `json:"on_since_boot_ns"`
	OffSeen time.Duration `json:"off_seen_since_boot_ns"`
}

func (s switches) recordFile() string { return filepath.Join(s.dir, "task_delayacct.json") }

// record reads what was kept, or what there is to start from: nothing is known of another boot. Times by another clock become
// "now", before which nothing is then taken for known.
func (s switches) record() (record, error) {
	boot, err := os.ReadFile(s.key)
	if err != nil {
		return record{}, fmt.Errorf("name this boot: %w", err)
	}
	here := record{Boot: strings.TrimSpace(string(boot))}
	if here.Clock, err = os.Readlink("/proc/self/ns/time"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return record{}, fmt.Errorf("name this clock: %w", err)
	}
	b, err := os.ReadFile(s.recordFile())
	if errors.Is(err, fs.ErrNotExist) {
		return here, nil
	}
	if err != nil {
		return record{}, fmt.Errorf("read the record of delay accounting: %w", err)
	}
	return parseRecord(b, here, sinceBoot())
}

func parseRecord(b []byte, here record, now time.Duration) (record, error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, fmt.Errorf("read the record of delay accounting: %w: %w", pagemap.ErrFormat, err)
	}
	if r.Boot != here.Boot {
		return here, nil
	}
	if r.OnSince < 0 || r.OffSeen < 0 {
		return record{}, fmt.Errorf("read the record of delay accounting: %w: negative times", pagemap.ErrFormat)
	}
	if r.Clock != here.Clock {
		here.OffSeen = now
		if r.OnSince != 0 {
			here.OnSince = now
		}
		return here, nil
	}
	return r, nil
}

// save puts a whole new file in the old one's place.
func (s switches) save(r record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("keep the record of delay accounting: %w", err)
	}
	tmp := s.recordFile() + ".new"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("keep the record of delay accounting: %w", err)
	}
	if err := os.Rename(tmp, s.recordFile()); err != nil {
		return fmt.Errorf("keep the record of delay accounting: %w", err)
	}
	return nil
}
