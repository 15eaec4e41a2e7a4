package profile

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"

	"github.com/populationgenomics/postern-go/seccompbpf"
)

// Validate returns everything about the profile that no run could have,
// joined; each is a [*FieldError]. It does not look at the file system.
func (p Profile) Validate() error {
	v := validator{prefix: "Profile."}
	p.validateFiles(&v)
	p.validateGuest(&v)
	return errors.Join(v.errs...)
}

// A validator collects problems.
type validator struct {
	prefix string
	errs   []error
}

func (v *validator) bad(field, format string, args ...any) {
	v.errs = append(v.errs, &FieldError{Field: v.prefix + field, Reason: fmt.Sprintf(format, args...)})
}

func (v *validator) host(field, p string) {
	switch {
	case !filepath.IsAbs(p):
		v.bad(field, "%q is not an absolute path", p)
	case strings.IndexByte(p, 0) >= 0:
		v.bad(field, "%q contains a NUL byte", p)
	}
}

// optionalHost accepts relative paths too, which a launch resolves.
func (v *validator) optionalHost(field, p string) {
	if strings.IndexByte(p, 0) >= 0 {
		v.bad(field, "%q contains a NUL byte", p)
	}
}

func (v *validator) atLeast(field string, n int64) {
	if n < Unlimited {
		v.bad(field, "is %d; it must be positive, 0 for the default, or Unlimited", n)
	}
}

// ours are places in the guest that a bind would hide or cannot be in.
var ours = []struct {
	dir   string
	below bool // what is below is ours too
}{{"/", false}, {"/proc", true}, {"/dev", true}, {"/run/postern", true}, {"/run", false}, {GuestWorkspace, false}}

func (v *validator) guest(field, p string) {
	switch {
	case !path.IsAbs(p):
		v.bad(field, "%q is not an absolute path", p)
		return
	case strings.IndexByte(p, 0) >= 0:
		v.bad(field, "%q contains a NUL byte", p)
		return
	case path.Clean(p) != strings.TrimSuffix(p, "/") && p != "/":
		v.bad(field, "%q is not a clean path; use %q", p, path.Clean(p))
		return
	}
	p = path.Clean(p)
	for _, o := range ours {
		if p == o.dir || o.below && strings.HasPrefix(p, o.dir+"/") {
			v.bad(field, "%q is where the sandbox has its own %s", p, o.dir)
			return
		}
	}
}

func (v *validator) binds(field string, binds []Bind) {
	for i, b := range binds {
		f := fmt.Sprintf("%s[%d]", field, i)
		v.host(f+".Host", b.Host)
		if b.Guest != "" || filepath.IsAbs(b.Host) {
			v.guest(f+".Guest", b.dest())
		}
	}
}

func (p Profile) validateFiles(v *validator) {
	v.optionalHost("Workspace", p.Workspace)
	v.atLeast("WorkspaceSize", p.WorkspaceSize)
	if p.Workspace != "" && p.WorkspaceSize != 0 {
		v.bad("WorkspaceSize", "puts the workspace in memory, but Workspace is set")
	}
	v.optionalHost("Rootfs", p.Rootfs)
	if o := p.Overlay; o != nil {
		if p.Rootfs != "" {
			v.bad("Overlay", "and Rootfs are both set")
		}
		if p.Etc != nil {
			v.bad("Etc", "does not go with Overlay, whose layers have an etc of their own")
		}
		if len(o.Lower) == 0 {
			v.bad("Overlay.Lower", "has no layer")
		}
		for i, l := range o.Lower {
			v.host(fmt.Sprintf("Overlay.Lower[%d]", i), l)
		}
		if o.Upper != "" {
			v.host("Overlay.Upper", o.Upper)
			if o.Size != 0 {
				v.bad("Overlay.Size", "is for layers in memory, but Upper is set")
			}
		}
		v.atLeast("Overlay.Size", o.Size)
	}
	v.binds("ReadOnlyBinds", p.ReadOnlyBinds)
	v.binds("RequiredBinds", p.RequiredBinds)
	v.binds("WritableBinds", p.WritableBinds)
	if p.StubDir != "" {
		v.host("StubDir", p.StubDir)
		if len(p.StubFiles) > 0 {
			v.bad("StubFiles", "and StubDir are both set")
		}
	}
	names := map[string]int{}
	for i, f := range p.StubFiles {
		field := fmt.Sprintf("StubFiles[%d]", i)
		v.host(field, f)
		if j, ok := names[filepath.Base(f)]; ok {
			v.bad(field, "has the same name as StubFiles[%d], %q", j, filepath.Base(f))
		}
		names[filepath.Base(f)] = i
	}
	if e := p.Etc; e != nil {
		if strings.ContainsAny(e.User, ":/\n\x00") {
			v.bad("Etc.User", "%q cannot be a user name", e.User)
		}
		if e.Home != "" && (!path.IsAbs(e.Home) || strings.ContainsAny(e.Home, ":\n\x00")) {
			v.bad("Etc.Home", "%q is not an absolute path that passwd can hold", e.Home)
		}
		if z := e.TimeZone; z != "" && (!filepath.IsLocal(z) || path.Clean(z) != z || strings.IndexByte(z, 0) >= 0) {
			v.bad("Etc.TimeZone", `%q is not a name like "Europe/Berlin"`, z)
		}
	}
	v.atLeast("TmpSize", p.TmpSize)
	v.atLeast("ShmSize", p.ShmSize)
}

func (p Profile) validateGuest(v *validator) {
	if strings.IndexByte(p.Python, 0) >= 0 {
		v.bad("Python", "%q contains a NUL byte", p.Python)
	}
	v.env("Env", p.Env)
	if p.HostGID != nil && p.HostUID == nil {
		v.bad("HostGID", "is set without HostUID")
	}
	if p.NoSeccomp && p.Seccomp != nil {
		v.bad("NoSeccomp", "and Seccomp are both set")
	}
	if !p.NoSeccomp {
		p.validateSeccomp(v)
	}
	v.atLeast("Limits.Processes", p.Limits.Processes)
	v.atLeast("Limits.AddressSpace", p.Limits.AddressSpace)
	v.atLeast("Limits.OpenFiles", p.Limits.OpenFiles)
	v.atLeast("Limits.FileSize", p.Limits.FileSize)
	v.atLeast("Limits.Stack", p.Limits.Stack)
	if p.Limits.CPU < Unlimited {
		v.bad("Limits.CPU", "is %v; it must be positive, 0 for the default, or Unlimited", p.Limits.CPU)
	} else if p.Limits.CPU > 0 && p.Limits.CPU%1e9 != 0 {
		v.bad("Limits.CPU", "is %v; it must be whole seconds", p.Limits.CPU)
	}
	if p.Network.Name != "" {
		if p.Network.File != nil {
			v.bad("Network", "has both a Name and a File")
		}
		if p.Network.Name != filepath.Base(p.Network.Name) || strings.Trim(p.Network.Name, ".") == "" || strings.IndexByte(p.Network.Name, 0) >= 0 {
			v.bad("Network.Name", "%q is not a name of a network namespace", p.Network.Name)
		}
	}
	v.atLeast("OutputLimit", p.OutputLimit)
}

func (p Profile) validateSeccomp(v *validator) {
	if _, err := seccompbpf.ForArch(runtime.GOARCH); err != nil {
		v.errs = append(v.errs, &FieldError{"Profile.Seccomp", "has no coverage for this architecture; set NoSeccomp to do without deliberately: " + err.Error(), err})
		return
	}
	if p.Seccomp == nil {
		return
	}
	if _, err := p.compile(); err != nil {
		v.errs = append(v.errs, err)
	}
}

// compile compiles the policy, unless it is one that has been compiled ahead.
func (p Profile) compile() (seccompbpf.Filter, error) {
	if reflect.DeepEqual(*p.Seccomp, seccompbpf.Baseline()) {
		return seccompbpf.BaselineFilter(), nil
	}
	f, err := p.Seccomp.CompileFor(runtime.GOARCH)
	if err != nil {
		return nil, &FieldError{"Profile.Seccomp", "cannot be compiled: " + err.Error(), err}
	}
	return f, nil
}

func (v *validator) env(field string, env []string) {
	names := map[string]int{}
	for i, e := range env {
		f := fmt.Sprintf("%s[%d]", field, i)
		name, _, ok := strings.Cut(e, "=")
		switch {
		case !ok || name == "":
			v.bad(f, "is not of the form NAME=value")
		case strings.IndexByte(e, 0) >= 0:
			v.bad(f, "%q contains a NUL byte", name)
		case name == "PWD", strings.HasPrefix(name, "POSTERN_"):
			v.bad(f, "sets %s, which is the sandbox's own", name)
		}
		if j, ok := names[name]; ok {
			v.bad(f, "sets %s, as %s[%d] does", name, field, j)
		}
		names[name] = i
	}
}
