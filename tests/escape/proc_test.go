//go:build linux

package escape

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
	"golang.org/x/sys/unix"
)

// Files by which root in the kernel controls the host. They are opened and
// never written.
var procAttacks = attacks("proc",
	toWrite("/proc/sys/kernel/core_pattern"), // runs a program on the host
	toWrite("/proc/sys/kernel/poweroff_cmd"), // so does this
	toWrite("/proc/sys/vm/drop_caches"),
	toWrite("/proc/sys/kernel/panic"),
	toWrite("/proc/sys/fs/file-max"),
	attack{name: "remove a mask", do: func() error { return unix.Unmount("/proc/sys", unix.MNT_DETACH) },
		blocked: []string{"EPERM"}, layers: []layer{seccomp, caps}},
	attack{name: "make a mask writable", do: func() error {
		return unix.Mount("", "/proc/sys", "", unix.MS_REMOUNT|unix.MS_BIND, "")
	}, blocked: []string{"EPERM"}, layers: []layer{seccomp, caps}},
	attack{name: "another proc", do: func() error { return unix.Mount("proc", "/tmp", "proc", 0, "") },
		blocked: []string{"EPERM"}, layers: []layer{seccomp, caps}},
)

func TestProc(t *testing.T) { run(t, "proc", procAttacks) }

func toWrite(path string) attack {
	return attack{
		name: "open " + path, do: func() error { return openTo(path, unix.O_WRONLY) },
		blocked: []string{"EROFS", "EACCES"}, layers: []layer{masks}, rootOnly: true, noRights: "EACCES",
	}
}

func openTo(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0o600)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// writableProc lists what can be opened for writing in /proc, the directories
// of processes aside.
var writableProc = guest.Probe("writable proc", func([]string) {
	seen := 0
	filepath.WalkDir("/proc", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || p == "/proc":
			return nil
		case strings.Count(p, "/") == 2 && p[6] >= '0' && p[6] <= '9':
			return fs.SkipDir
		case d.IsDir() || d.Type()&fs.ModeSymlink != 0:
			return nil
		}
		seen++
		if openTo(p, unix.O_WRONLY) == nil {
			fmt.Println(p)
		}
		return nil
	})
	fmt.Println("seen many:", seen > 300)
})

// A guest can write to nothing in /proc but what belongs to its processes,
// whatever the kernel has there.
func TestNothingWritableInProc(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		p := wall(t)
		if got := inGuest(t, p, writableProc, nil); got != "seen many: true" {
			t.Errorf("a guest can open for writing:\n%s", got)
		}
		if got := lines(inGuest(t, p, writableProc, nil, masks)); isRoot() && !slices.Contains(got, "/proc/sys/kernel/core_pattern") {
			t.Errorf("without masks it can open %q; this attack proves nothing", got)
		}
	})
}

// readProbe reads the files named and prints the first bytes of those it can.
var readProbe = guest.Probe("read", func(args []string) {
	for _, path := range args {
		f, err := os.Open(path)
		if err != nil {
			fmt.Println(path, outcome(err))
			continue
		}
		buf := make([]byte, 64<<10)
		n, err := f.Read(buf)
		if n == 0 && err != nil {
			fmt.Println(path, outcome(err))
		} else {
			fmt.Printf("%s: %q\n", path, buf[:n])
		}
		f.Close()
	}
})

// A guest can open none of the files that tell about the machine's memory and
// the host's keys.
func TestHiddenInProc(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		p := wall(t)
		for _, l := range lines(inGuest(t, p, readProbe, []string{
			"/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats",
			"/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup", "/proc/vmallocinfo", "/proc/slabinfo", "/proc/kmsg",
		})) {
			_, what, _ := strings.Cut(l, " ")
			if what != "EACCES" && what != "ENOENT" && what != "EPERM" {
				t.Errorf("a guest reads %.200s", l)
			}
		}
	})
}

const canaryKey = "postern-escape-canary"

// keyHost is a host with a key in its session keyring.
var keyHost = guest.Probe("key host", func(args []string) {
	runtime.LockOSThread() // which the keyring belongs to
	kind, desc, payload := []byte("user\x00"), []byte(canaryKey+"\x00"), []byte("secret")
	if err := errnoOf(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0); err != nil {
		fmt.Println("no keys:", outcome(err))
		return
	}
	session := ^uintptr(2) // KEY_SPEC_SESSION_KEYRING, -3
	if err := errnoOf(unix.SYS_ADD_KEY, uintptr(unsafe.Pointer(&kind[0])), uintptr(unsafe.Pointer(&desc[0])),
		uintptr(unsafe.Pointer(&payload[0])), uintptr(len(payload)), session); err != nil {
		fmt.Println("no keys:", outcome(err))
		return
	}
	s, err := profileHere().Spec([]string{guestSelf, args[0]})
	if err == nil {
		s.Env = append(s.Env, guest.ProbeEnv(keyProbe))
		if args[0] == "weak" {
			edit(s, func(p *mounts.Proc) { p.Hidden = nil })
			s.Seccomp = nil
		}
		var r guest.Result
		r, err = guest.Try(s)
		fmt.Print(r.Out)
	}
	if err != nil {
		fmt.Println(err)
	}
})

// keyProbe looks for keys of the host.
var keyProbe = guest.Probe("keys", func([]string) {
	runtime.LockOSThread()
	b, err := os.ReadFile("/proc/keys")
	fmt.Println("listed:", strings.Contains(string(b), canaryKey), outcome(err))
	kind, desc := []byte("user\x00"), []byte(canaryKey+"\x00")
	for _, c := range []struct {
		name string
		nr   uintptr
		args []uintptr
	}{
		{"keyctl", unix.SYS_KEYCTL, []uintptr{unix.KEYCTL_GET_KEYRING_ID, ^uintptr(2), 0}},
		{"persistent", unix.SYS_KEYCTL, []uintptr{unix.KEYCTL_GET_PERSISTENT, ^uintptr(0), ^uintptr(1)}},
		{"request_key", unix.SYS_REQUEST_KEY, []uintptr{uintptr(unsafe.Pointer(&kind[0])), uintptr(unsafe.Pointer(&desc[0])), 0, 0}},
		{"add_key", unix.SYS_ADD_KEY, []uintptr{uintptr(unsafe.Pointer(&kind[0])), uintptr(unsafe.Pointer(&desc[0])), uintptr(unsafe.Pointer(&desc[0])), 1, ^uintptr(2)}},
	} {
		fmt.Println(c.name+":", outcome(errnoOf(c.nr, c.args...)))
	}
})

// A guest inherits the keyrings of its host from the kernel. It can neither
// use them nor see them.
func TestKeyrings(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		weak := onHost(t, keyHost, "weak")
		if strings.HasPrefix(weak, "no keys") {
			testutil.Missing(t, "this machine lets nobody have keys: "+weak)
		}
		if want := "request_key: " + through; !slices.Contains(lines(weak), "listed: true "+through) || !slices.Contains(lines(weak), want) {
			t.Errorf("without what hides keys, a guest says\n%s\nthis attack proves nothing", weak)
		}
		want := "listed: false EACCES\nkeyctl: EPERM\npersistent: EPERM\nrequest_key: EPERM\nadd_key: EPERM"
		if got := onHost(t, keyHost, "wall"); got != want {
			t.Errorf("a guest says\n%s\nwant\n%s", got, want)
		}
	})
}

// The kernel shows a guest none of its addresses.
func TestKernelAddresses(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		got := inGuest(t, wall(t), readProbe, []string{"/proc/kallsyms", "/proc/iomem"})
		for _, l := range lines(got) {
			for _, line := range strings.Split(l, `\n`) {
				line = strings.TrimPrefix(line[strings.IndexByte(line, '"')+1:], " ")
				if len(line) > 8 && strings.Trim(line[:8], "0123456789abcdef") == "" && line[:8] != "00000000" {
					t.Errorf("a guest sees the address %s", line)
				}
			}
		}
	})
}
