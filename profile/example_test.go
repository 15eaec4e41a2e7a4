package profile_test

import (
	"errors"
	"fmt"
	"os"

	"github.com/populationgenomics/postern-go/profile"
	"github.com/populationgenomics/postern-go/seccompbpf"
)

func ExampleProfile() {
	p := profile.Profile{
		Workspace:     "/srv/jobs/1",
		Rootfs:        "/opt/guest-root",
		RequiredBinds: []profile.Bind{{Host: "/srv/data", Guest: "/data"}},
		Etc:           &profile.Etc{TimeZone: "Australia/Melbourne"},
		Limits:        profile.Limits{Processes: 64, AddressSpace: 2 << 30},
		Seccomp:       new(seccompbpf.Baseline()),
		HostUID:       new(uint32(10001)),
		TmpSize:       profile.Unlimited,
	}
	fmt.Println(p.Validate())
	p.Limits.Processes = -5
	p.Rootfs = "bad\x00path"
	fmt.Println(p.Validate())
	// Output:
	// <nil>
	// postern: Profile.Rootfs "bad\x00path" contains a NUL byte
	// postern: Profile.Limits.Processes is -5; it must be positive, 0 for the default, or Unlimited
}

func ExampleProfile_WithVenv() {
	p, err := profile.Profile{}.WithVenv("/opt/analysis-env")
	if errors.Is(err, os.ErrNotExist) {
		fmt.Println("make it first, with python3 -m venv")
		return
	}
	fmt.Println(p.Python)
	// Output: make it first, with python3 -m venv
}
