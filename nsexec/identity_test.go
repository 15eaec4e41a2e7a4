//go:build linux

package nsexec_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/seccompbpf"
	"golang.org/x/sys/unix"
)

func TestSingleIDMap(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		own, ownGroup := uint32(os.Getuid()), uint32(os.Getgid())
		for _, c := range []struct{ uid, gid *uint32 }{
			{nil, nil}, {ptr[uint32](0), ptr[uint32](0)}, {ptr[uint32](1234), ptr[uint32](4321)}, {ptr[uint32](65534), nil}, {nil, ptr[uint32](7)},
			{ptr[uint32](1<<32 - 2), ptr[uint32](1<<32 - 2)},
		} {
			uid, gid := own, ownGroup
			if c.uid != nil {
				uid = *c.uid
			}
			if c.gid != nil {
				gid = *c.gid
			}
			s := guest.Shell("id -u; id -g; cat /proc/self/uid_map /proc/self/gid_map | while read a b c; do echo $a $b $c; done; stat -c '%u %g' /tmp")
			s.UID, s.GID = c.uid, c.gid
			want := fmt.Sprintf("%d\n%d\n%d %d 1\n%d %d 1\n%d %d", uid, gid, uid, own, gid, ownGroup, uid, gid)
			if got := guest.MustOutput(t, s); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	})
}

// Without a user namespace root may take another real ID.
func TestIDsWithoutUserNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		testutil.Missing(t, "only root can change its IDs")
	}
	s := guest.Shell(`id -u; id -g; id -G; sed -n 's/^Cap...:\t//p' /proc/self/status; cat /proc/1/environ 2>&1 | head -c 3; touch /tmp/x; stat -c %u /tmp/x`)
	s.Namespaces.User = nsexec.Share
	s.UID, s.GID = ptr[uint32](1234), ptr[uint32](4321)
	zero := strings.Repeat("0000000000000000\n", 5)
	if got, want := guest.MustOutput(t, s), "1234\n4321\n4321\n"+zero+"cat1234"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestIDRangesWrittenByRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		testutil.Missing(t, "only root can write ranges of IDs itself")
	}
	t.Setenv("PATH", "") // no newuidmap
	ranges := []nsexec.IDMap{{Inside: 0, Outside: 100000, Count: 1000}, {Inside: 2000, Outside: 0, Count: 1}}
	for _, c := range []struct {
		id  *uint32
		uid string
	}{{ptr[uint32](0), "0"}, {ptr[uint32](7), "7"}, {nil, "2000"}} {
		s := guest.Shell("id -u; id -g; cat /proc/self/uid_map /proc/self/gid_map | tr -s ' '; cat /proc/self/setgroups; stat -c %u /usr")
		s.UID, s.GID, s.UIDMap, s.GIDMap = c.id, c.id, ranges, ranges
		const maps = " 0 100000 1000\n 2000 0 1\n"
		want := c.uid + "\n" + c.uid + "\n" + maps + maps + "allow\n2000"
		if got := guest.MustOutput(t, s); got != want {
			t.Errorf("as %v: %q, want %q", c.id, got, want)
		}
	}
	// An init that is in need of all its rights works as any of the users.
	s := guest.Shell("id -u; sed -n 's/^Cap...:\t//p' /proc/self/status; touch /tmp/a; cat /proc/1/environ >/dev/null 2>&1 || echo closed")
	s.UID, s.GID, s.UIDMap, s.GIDMap, s.Caps = ptr[uint32](5), ptr[uint32](5), ranges, ranges, 1<<unix.CAP_NET_ADMIN
	const one = "0000000000001000\n"
	if got, want := guest.MustOutput(t, s), "5\n"+strings.Repeat(one, 5)+"closed"; got != want {
		t.Errorf("with a capability: %q, want %q", got, want)
	}
}

func TestIDRangesByNewuidmap(t *testing.T) {
	testutil.RequireTool(t, "newuidmap")
	if os.Geteuid() == 0 {
		subordinate(t)
	}
	asNobody(t, func(t *testing.T) {
		ranges := []nsexec.IDMap{{Inside: 0, Outside: testutil.Nobody, Count: 1}, {Inside: 1, Outside: firstSub, Count: 100}}
		s := guest.Shell("id -u; cat /proc/self/uid_map /proc/self/gid_map | tr -s ' '; stat -c %u /tmp")
		s.UID, s.GID, s.UIDMap, s.GIDMap = ptr[uint32](5), ptr[uint32](5), ranges, ranges
		maps := fmt.Sprintf(" 0 %d 1\n 1 %d 100\n", testutil.Nobody, firstSub)
		if got, want := guest.MustOutput(t, s), "5\n"+maps+maps+"5"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		// IDs that are not the user's are refused, in newuidmap's own words.
		ranges[1].Outside = firstSub + 1000000
		if se := wantStartError(t, s, nsexec.DoMap, unix.EPERM); !strings.Contains(se.Hint, "newuidmap") {
			t.Errorf("hint %q", se.Hint)
		}
		t.Setenv("PATH", "")
		if se := wantStartError(t, s, nsexec.DoMap, unix.EPERM); !strings.Contains(se.Hint, "uidmap") {
			t.Errorf("without newuidmap: hint %q", se.Hint)
		}
	})
}

const firstSub = 700000

// subordinate gives nobody ranges of subordinate IDs for the time of a test.
func subordinate(t *testing.T) {
	for _, path := range []string{"/etc/subuid", "/etc/subgid"} {
		old, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%s%d:%d:1000\n", old, testutil.Nobody, firstSub)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			testutil.Missing(t, "cannot give nobody subordinate IDs: "+err.Error())
		}
		t.Cleanup(func() {
			if err := os.WriteFile(path, old, 0o644); err != nil {
				t.Error(err)
			}
		})
	}
}

// asNobody runs a test only as nobody.
func asNobody(t *testing.T, f func(*testing.T)) {
	t.Helper()
	testutil.EachUser(t, func(t *testing.T) {
		if os.Geteuid() != 0 {
			f(t)
		}
	})
}

func TestCapabilities(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		const none = "0000000000000000\n"
		const show = `sed -n 's/^Cap...:\t//p' /proc/self/status`
		two := nsexec.CapSet(1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_BPF)
		sets := func(c nsexec.CapSet) string {
			return strings.TrimSpace(strings.Repeat(fmt.Sprintf("%016x\n", uint64(c)), 5))
		}
		for _, init := range []bool{true, false} {
			for _, uid := range []uint32{0, 65534} {
				for _, c := range []nsexec.CapSet{0, two, 1 << unix.CAP_CHOWN} {
					s := guest.Shell(show)
					s.Init, s.UID, s.GID, s.Caps = init, &uid, &uid, c
					if got := guest.MustOutput(t, s); got != sets(c) {
						t.Errorf("Init %v, UID %d, Caps %v: %q", init, uid, c, got)
					}
				}
			}
			s := guest.Shell(show)
			s.Init, s.Caps, s.KeepCaps = init, nsexec.AllCaps, true
			got := strings.Split(guest.MustOutput(t, s), "\n")
			if len(got) != 5 || got[3] == none[:16] {
				t.Errorf("Init %v, KeepCaps: %q", init, got)
			}
			s.UID, s.GID = ptr[uint32](0), ptr[uint32](0)
			if got := guest.MustOutput(t, s); strings.Count(got, "000001ffffffffff") < 3 {
				t.Errorf("Init %v, KeepCaps as root: %q", init, got)
			}
		}
		// A capability is good for what it says, and the init has none.
		s := guest.Shell("ip link set lo down && ip link show lo | grep -c LOOPBACK; sed -n 's/^CapEff:\t//p' /proc/1/status")
		s.Caps = 1 << unix.CAP_NET_ADMIN
		if got := guest.MustOutput(t, s); got != "1\n0000000000000000" {
			t.Errorf("%q", got)
		}
		s.Caps = 0
		if r := guest.Run(t, s); !strings.Contains(r.Out, "not permitted") {
			t.Errorf("without the capability: %q", r.Out)
		}
	})
}

// Set-user-ID programs and file capabilities are inert unless asked for.
func TestNewPrivileges(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, init := range []bool{true, false} {
			for allow, want := range map[bool]string{false: "1", true: "0"} {
				s := guest.Spec([]string{"sed", "-n", "s/NoNewPrivs:\t//p", "/proc/self/status"})
				s.Init, s.AllowNewPrivs = init, allow
				if got := guest.MustOutput(t, s); got != want {
					t.Errorf("Init %v, AllowNewPrivs %v: %s, want %s", init, allow, got, want)
				}
			}
		}
	})
}

func TestSupplementaryGroups(t *testing.T) {
	if os.Geteuid() != 0 {
		testutil.Missing(t, "only root can have supplementary groups of its choice")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), guest.ProbeEnv(groupsProbe))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Groups: []uint32{4242}}}
	out, err := cmd.CombinedOutput()
	// In the guest the group has no ID: it shows as the overflow ID.
	const want = "dropped: \nkept: 65534\nkept without user namespace: 4242\ndropped without user namespace: \n"
	if err != nil || string(out) != want {
		t.Errorf("%v: %s\nwant %s", err, out, want)
	}
}

var groupsProbe = guest.Probe("groups", func([]string) {
	for _, c := range []struct {
		what  string
		keep  bool
		share bool
	}{{"dropped", false, false}, {"kept", true, false}, {"kept without user namespace", true, true}, {"dropped without user namespace", false, true}} {
		s := guest.Spec([]string{"sed", "-n", `s/Groups:\t//p`, "/proc/self/status"})
		s.KeepGroups = c.keep
		if c.share {
			s.Namespaces.User, s.UID, s.GID = nsexec.Share, nil, nil
		}
		r, err := guest.Try(s)
		if err != nil {
			r.Out = err.Error()
		}
		fmt.Printf("%s: %s\n", c.what, strings.TrimSpace(r.Out))
	}
})

// HostUser runs the whole launch as another user: what the guest creates is
// that user's, and what that user cannot reach cannot be bound.
func TestHostUser(t *testing.T) {
	if os.Geteuid() != 0 {
		s := guest.Shell("true")
		s.HostUser = &nsexec.HostUser{UID: 5}
		var se *nsexec.SpecError
		if _, err := nsexec.Start(s); !errors.As(err, &se) || se.Field != "HostUser" {
			t.Errorf("not as root: %v", err)
		}
		return
	}
	const uid, gid = 4321, 1234
	dir := testutil.NobodyDir(t)
	for _, c := range []struct {
		gid *uint32
		g   int
	}{{nil, 0}, {ptr[uint32](gid), gid}} {
		shared := fmt.Sprintf("%s/%d", dir, c.g)
		if err := os.Mkdir(shared, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(shared, uid, c.g); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		s := guest.Shell("id -u; id -g; cat /proc/self/uid_map /proc/self/gid_map | tr -s ' '; id -G; touch /shared/new; echo x >/proc/sys/kernel/core_pattern", mounts.Bind{Source: shared, Dest: "/shared", Mode: mounts.ReadWrite})
		s.HostUser = &nsexec.HostUser{UID: uid, GID: c.gid}
		r := guest.Run(t, s)
		want := fmt.Sprintf("65534\n65534\n 65534 %d 1\n 65534 %d 1\n65534\n", uid, c.g)
		if !strings.HasPrefix(r.Out, want) || !strings.Contains(r.Out, "Permission denied") {
			t.Errorf("%q, want %q and core_pattern denied", r.Out, want)
		}
		var st unix.Stat_t
		if err := unix.Stat(shared+"/new", &st); err != nil || st.Uid != uid || int(st.Gid) != c.g {
			t.Errorf("the guest's file belongs to %d:%d (%v), want %d:%d", st.Uid, st.Gid, err, uid, c.g)
		}
	}
	private := t.TempDir()
	if err := os.Chmod(private, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(private+"/below", 0o777); err != nil {
		t.Fatal(err)
	}
	s := guest.Shell("true", mounts.Bind{Source: private + "/below", Dest: "/shared"})
	s.HostUser = &nsexec.HostUser{UID: uid, GID: ptr[uint32](gid)}
	se := wantStartError(t, s, mounts.DoSource, unix.EACCES)
	if se.On != private+"/below" || se.Hint == "" {
		t.Errorf("on %q, hint %q", se.On, se.Hint)
	}
}

// tryUserns prints whether a user namespace can be made.
const tryUserns = "unshare -U true 2>&1 && echo made"

func TestDisableUserns(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := guest.Shell(tryUserns)
		if r := guest.Run(t, s); r.Out != "made\n" {
			t.Fatalf("without DisableUserns: %q", r.Out) // the control
		}
		s.AssertUsernsDisabled = true
		wantStartError(t, s, nsexec.DoUsernsCheck, unix.EBADF)
		for _, uid := range []uint32{0, 65534, 1000} {
			for _, init := range []bool{true, false} {
				s = guest.Shell(tryUserns + "; id -u; id -g; tr -s ' ' </proc/self/uid_map; unshare -U true; exit 4")
				s.DisableUserns, s.UID, s.GID, s.Init = true, &uid, &uid, init
				r := guest.Run(t, s)
				if strings.Contains(r.Out, "made") || !strings.Contains(r.Out, "No space left on device") || r.ExitCode != 4 {
					t.Errorf("with DisableUserns: %d %q", r.ExitCode, r.Out)
				}
				if want := fmt.Sprintf("%d\n%d\n %d %d 1\n", uid, uid, uid, uid); !strings.Contains(r.Out, want) {
					t.Errorf("identity %q, want %q", r.Out, want)
				}
			}
		}
		// The guest cannot take it back, whatever it has.
		s = guest.Shell("echo 100 >/proc/sys/user/max_user_namespaces; " + tryUserns)
		s.DisableUserns, s.UID, s.GID, s.Caps, s.KeepCaps = true, ptr[uint32](0), ptr[uint32](0), nsexec.AllCaps, true
		if r := guest.Run(t, s); strings.Contains(r.Out, "made") {
			t.Errorf("with all capabilities: %q", r.Out)
		}
		// A filter does it as well, and that satisfies the assertion.
		f, err := (seccompbpf.Policy{Name: "test", Default: seccompbpf.Allow, Unlisted: seccompbpf.Allow}).Compile()
		if err != nil {
			t.Fatal(err)
		}
		s = guest.Shell("true")
		s.DisableUserns, s.AssertUsernsDisabled, s.Seccomp = true, true, []seccompbpf.Filter{f}
		guest.MustOutput(t, s)
	})
}

func TestSeccomp(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		deny := func(call string, errno unix.Errno) seccompbpf.Filter {
			f, err := (seccompbpf.Policy{Name: "test", Default: seccompbpf.Allow, Unlisted: seccompbpf.Allow,
				Rules: []seccompbpf.Rule{{Syscall: call, Action: seccompbpf.Errno(uint16(errno))}}}).Compile()
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		for _, init := range []bool{true, false} {
			s := guest.Shell("uname 2>&1; mkdir /tmp/x 2>&1; grep Seccomp_filters /proc/self/status")
			s.Init = init
			s.Seccomp = []seccompbpf.Filter{deny("uname", unix.EDOM), deny("mkdir", unix.EXDEV), deny("mkdirat", unix.EXDEV)}
			got := guest.MustOutput(t, s)
			if !strings.Contains(got, "Numerical argument out of domain") || !strings.Contains(got, "Invalid cross-device link") || !strings.Contains(got, "Seccomp_filters:\t3") {
				t.Errorf("Init %v: %q", init, got)
			}
			if init { // which is filtered too
				s = guest.Shell("grep Seccomp_filters /proc/1/status")
				s.Seccomp = []seccompbpf.Filter{deny("uname", unix.EDOM)}
				if got := guest.MustOutput(t, s); got != "Seccomp_filters:\t1" {
					t.Errorf("the init: %q", got)
				}
			}
		}
		s := guest.Shell("true")
		s.Seccomp = []seccompbpf.Filter{{{Code: 0xffff}}}
		var se *nsexec.SpecError
		if _, err := nsexec.Start(s); !errors.As(err, &se) || se.Field != "Seccomp" || !errors.Is(err, seccompbpf.ErrInvalidFilter) {
			t.Errorf("a broken filter: %v", err)
		}
	})
}

func TestCapSet(t *testing.T) {
	for _, c := range []struct {
		name string
		set  nsexec.CapSet
		ok   bool
	}{
		{"CAP_NET_ADMIN", 1 << unix.CAP_NET_ADMIN, true}, {"cap_chown", 1, true}, {"CAP_CHECKPOINT_RESTORE", 1 << unix.CAP_CHECKPOINT_RESTORE, true},
		{"NET_ADMIN", 0, false}, {"CAP_", 0, false}, {"CAP_NOTHING", 0, false}, {"", 0, false},
	} {
		if set, ok := nsexec.CapByName(c.name); set != c.set || ok != c.ok {
			t.Errorf("CapByName(%q) = %v, %v", c.name, set, ok)
		}
	}
	for set, want := range map[nsexec.CapSet]string{0: "none", nsexec.AllCaps: "all", 1 | 1<<unix.CAP_BPF: "CAP_CHOWN CAP_BPF", 1 << 50: "CAP_50"} {
		if got := set.String(); got != want {
			t.Errorf("%#x prints as %q, want %q", uint64(set), got, want)
		}
	}
	for i := range unix.CAP_LAST_CAP + 1 {
		name := nsexec.CapSet(1 << i).String()
		if set, ok := nsexec.CapByName(name); !ok || set != 1<<i {
			t.Errorf("capability %d prints as %q, which means %v", i, name, set)
		}
	}
}
