package profile

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/populationgenomics/postern-go/seccompbpf"
)

func TestValidate(t *testing.T) {
	if err := (Profile{}).Validate(); err != nil {
		t.Error(err)
	}
	bad := Profile{
		Workspace: "/x", WorkspaceSize: 5,
		Rootfs: "/r", Overlay: &Overlay{Upper: "rel", Size: 3}, Etc: &Etc{User: "a:b", Home: "home", TimeZone: "../x"},
		ReadOnlyBinds: []Bind{{Host: "relative"}, {Host: "/a", Guest: "/proc/x"}, {Host: "/"}},
		RequiredBinds: []Bind{{Host: "/a", Guest: "b"}, {Host: "/a", Guest: "/b/../c"}, {Host: "/a", Guest: "/workspace"}},
		WritableBinds: []Bind{{Host: "/a\x00"}},
		StubDir:       "stubs", StubFiles: []string{"/a/x", "/b/x"},
		TmpSize: -2, ShmSize: -3, Python: "a\x00",
		Env:     []string{"A", "=x", "PWD=/", "POSTERN_HATCH=x", "B=1", "B=2"},
		HostGID: new(uint32(1)), Seccomp: new(seccompbpf.Policy{Rules: []seccompbpf.Rule{{Syscall: "no-such-call"}}}),
		Limits:      Limits{Processes: -2, AddressSpace: -2, OpenFiles: -2, FileSize: -2, Stack: -2, CPU: 1500e6},
		Network:     Network{Name: "../x", File: os.Stdin},
		OutputLimit: -9,
	}
	err := bad.Validate()
	if err == nil {
		t.Fatal("it is valid")
	}
	var got []string
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		f, ok := errors.AsType[*FieldError](e)
		if !ok {
			t.Errorf("%v is no FieldError", e)
			continue
		}
		got = append(got, strings.TrimPrefix(f.Field, "Profile."))
	}
	want := []string{
		"WorkspaceSize", "Overlay", "Etc", "Overlay.Lower", "Overlay.Upper", "Overlay.Size",
		"ReadOnlyBinds[0].Host", "ReadOnlyBinds[1].Guest", "ReadOnlyBinds[2].Guest",
		"RequiredBinds[0].Guest", "RequiredBinds[1].Guest", "RequiredBinds[2].Guest", "WritableBinds[0].Host", "WritableBinds[0].Guest",
		"StubDir", "StubFiles", "StubFiles[1]", "Etc.User", "Etc.Home", "Etc.TimeZone", "TmpSize", "ShmSize", "Python",
		"Env[0]", "Env[1]", "Env[2]", "Env[3]", "Env[5]", "HostGID", "Seccomp",
		"Limits.Processes", "Limits.AddressSpace", "Limits.OpenFiles", "Limits.FileSize", "Limits.Stack", "Limits.CPU",
		"Network", "Network.Name", "OutputLimit",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s\n%v", d, err)
	}
	if !errors.Is(err, seccompbpf.ErrInvalidPolicy) {
		t.Error("the cause is lost")
	}
	if err := (Profile{NoSeccomp: true, Seccomp: new(seccompbpf.Baseline())}).Validate(); err == nil {
		t.Error("a policy and none is valid")
	}
	for _, c := range []Command{{}, {Args: []string{""}}, {Args: []string{"a\x00"}}, {Args: []string{"a"}, Env: []string{"x"}},
		{Args: []string{"a"}, Input: []byte{}, StdinPipe: true}, {Args: []string{"a"}, StdinPipe: true, Terminal: &WindowSize{}}} {
		if _, ok := errors.AsType[*FieldError](c.Validate()); !ok {
			t.Errorf("%+v is valid", c)
		}
	}
}
