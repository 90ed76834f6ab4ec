package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cowaudit/audit"
)

func doctorReport(frames audit.Ability) *audit.DoctorReport {
	return audit.NewDoctorReport(audit.DoctorReport{
		Version: "1.2.3", Host: "node-7", Kernel: "6.1.0-44-amd64", Machine: "aarch64", PageSize: 16384, TimeUnixNano: 1_790_000_000_000_000_000,
		Rows: []audit.DoctorRow{
			{Name: audit.DoctorFrames, Group: "pages", State: frames, Detail: "what was seen of frame numbers", Remedy: "run it as root: sudo cowaudit doctor", SinceKernel: "2.6.25"},
			{Name: "page_flags", Group: "pages", State: audit.AbilityNo, Detail: "/proc/kpageflags may be opened by root only", Remedy: "run it as root: sudo cowaudit doctor"},
			{Name: "page_mapcounts", Group: "pages", State: audit.AbilityUnknown, Detail: "the kernel's configuration is neither in /proc/config.gz nor in /boot", Remedy: "/boot/config-6.1.0-44-amd64 of the running kernel"},
			{Name: "process_maps", Group: "processes", State: audit.AbilityYes, Detail: "the pages of all 214 processes"},
			{Name: "ksm", Group: "host", State: audit.AbilityNo, Detail: "does not run"},
			{Name: "ruby", Group: "programs", State: audit.AbilityYes, Detail: "/opt/ruby\x1b[31m/bin/ruby: ruby 3.3.8"},
			{Name: "moonlight", Group: "not yet known", State: audit.AbilityYes, Detail: "from a newer version"},
		},
	})
}

func TestDoctorText(t *testing.T) {
	for _, c := range []struct {
		name   string
		frames audit.Ability
		o      Options
	}{
		{"doctor_yes", audit.AbilityYes, Options{}},
		{"doctor_no_narrow", audit.AbilityNo, Options{Width: 60}},
		{"doctor_unknown_color", audit.AbilityUnknown, Options{Color: true, Width: 120}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := Text(&b, doctorReport(c.frames), c.o); err != nil {
				t.Fatal(err)
			}
			limit := c.o.Width
			if limit == 0 {
				limit = 80
			}
			for _, line := range strings.Split(b.String(), "\n") {
				if !c.o.Color && width(line) > limit {
					t.Errorf("%d columns: %q", width(line), line)
				}
			}
			golden(t, c.name, b.Bytes())
		})
	}
}

// The conclusion is drawn from the frame numbers alone.
func TestDoctorMeasurable(t *testing.T) {
	for a, want := range map[audit.Ability]bool{audit.AbilityYes: true, audit.AbilityNo: false, audit.AbilityUnknown: false} {
		if got := doctorReport(a).Measurable; got != want {
			t.Errorf("frame numbers %s: measurable %v", a, got)
		}
	}
}

func TestDoctorJSON(t *testing.T) {
	r := doctorReport(audit.AbilityYes)
	var b bytes.Buffer
	if err := JSON(&b, r); err != nil {
		t.Fatal(err)
	}
	golden(t, "doctor.json", b.Bytes())
	got, err := Load(&b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, got); diff != "" {
		t.Errorf("read back (-written +read):\n%s", diff)
	}
}
