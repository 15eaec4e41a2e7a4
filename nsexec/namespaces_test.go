//go:build linux

package nsexec_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go/internal/stage"
	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namespaces are named as below /proc/PID/ns.
var namespaces = []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"}

func nsOf(t testing.TB, name string) string {
	t.Helper()
	s, err := os.Readlink("/proc/self/ns/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func field(n *nsexec.Namespaces, name string) *nsexec.Namespace {
	return map[string]*nsexec.Namespace{"user": &n.User, "mnt": &n.Mount, "pid": &n.PID, "net": &n.Net, "ipc": &n.IPC, "uts": &n.UTS, "cgroup": &n.Cgroup}[name]
}

// Every namespace can be had alone: it is new and all others are shared.
func TestEachNamespaceAlone(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, name := range namespaces {
			var ns nsexec.Namespaces
			*field(&ns, name) = nsexec.New
			if os.Geteuid() != 0 {
				ns.User = nsexec.New // which gives the right to the others
			}
			got := identify(t, ns)
			for _, other := range namespaces {
				fresh := got[other] != nsOf(t, other)
				if want := field(&ns, other).IsNew(); fresh != want {
					t.Errorf("%s alone: the %s namespace is new: %v, want %v", name, other, fresh, want)
				}
			}
		}
	})
}

// identify launches a guest that stays, and reads its namespaces from outside.
func identify(t *testing.T, ns nsexec.Namespaces) map[string]string {
	t.Helper()
	got := map[string]string{}
	in, feed := testutil.Pipe(t)
	p, err := nsexec.Start(&nsexec.Spec{Path: "/bin/cat", Args: []string{"cat"}, Namespaces: ns, Stdin: in})
	in.Close()
	if err != nil {
		t.Fatalf("%+v: %v", ns, err)
	}
	for _, n := range namespaces {
		if got[n], err = os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", p.PID(), n)); err != nil {
			t.Error(err)
		}
	}
	feed.Close()
	<-p.Done()
	return got
}

// A guest can live in every namespace of another one, joined by descriptor.
func TestJoinEachNamespace(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		in, feed := testutil.Pipe(t)
		s := &nsexec.Spec{Path: "/bin/cat", Args: []string{"cat"}, Namespaces: nsexec.AllNew(), Stdin: in} // an init is closed to the unprivileged
		host, err := nsexec.Start(s)
		in.Close()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { feed.Close(); <-host.Done() }()
		files := map[string]*os.File{}
		for _, n := range namespaces {
			files[n] = open(t, fmt.Sprintf("/proc/%d/ns/%s", host.PID(), n))
		}
		check := func(what string, ns nsexec.Namespaces, joined ...string) {
			t.Helper()
			got := identify(t, ns)
			for _, n := range namespaces {
				theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", host.PID(), n))
				if err != nil {
					t.Fatal(err)
				}
				want := nsOf(t, n)
				for _, j := range joined {
					if j == n {
						want = theirs
					}
				}
				if got[n] != want {
					t.Errorf("%s: in the %s namespace %s, want %s", what, n, got[n], want)
				}
			}
		}
		for _, name := range namespaces {
			var ns nsexec.Namespaces
			ns.User = nsexec.Join(files["user"]) // it owns the others
			*field(&ns, name) = nsexec.Join(files[name])
			check(name, ns, "user", name)
		}
		var all nsexec.Namespaces
		for _, name := range namespaces {
			*field(&all, name) = nsexec.Join(files[name])
		}
		check("all", all, namespaces...)
	})
}

func TestJoinNamedNetwork(t *testing.T) {
	if os.Geteuid() != 0 {
		testutil.Missing(t, "only root can name a network namespace")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	name := fmt.Sprintf("postern-test-%d", os.Getpid())
	there, err := netns.NewNamed(name)
	if err != nil {
		t.Fatal(err)
	}
	defer netns.DeleteNamed(name)
	defer there.Close()
	if err := netns.Set(home); err != nil {
		t.Fatal(err)
	}
	again, err := netns.GetFromName(name)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(again), name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(again), &st); err != nil {
		t.Fatal(err)
	}
	s := guest.Spec([]string{"readlink", "/proc/self/ns/net"})
	s.Namespaces.Net = nsexec.Join(f)
	s.Namespaces.User = nsexec.Share
	s.UID, s.GID = nil, nil
	if got, want := guest.MustOutput(t, s), fmt.Sprintf("net:[%d]", st.Ino); got != want {
		t.Errorf("in %s, want %s", got, want)
	}
	// The namespace belongs to the host's root, so a new user namespace may
	// only join it if that happens first.
	s.Namespaces.User = nsexec.New
	s.UID, s.GID = ptr[uint32](65534), ptr[uint32](65534)
	if got, want := guest.MustOutput(t, s), fmt.Sprintf("net:[%d]", st.Ino); got != want {
		t.Errorf("with a new user namespace: in %s, want %s", got, want)
	}
}

func TestLoopback(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := guest.Spec([]string{"ip", "-o", "address"})
		got := guest.MustOutput(t, s)
		if !strings.Contains(got, "127.0.0.1/8") || !strings.Contains(got, "::1/128") || strings.Count(got, "\n") != 1 {
			t.Errorf("addresses:\n%s", got)
		}
		s = guest.Spec([]string{"ip", "-o", "link"})
		if got := guest.MustOutput(t, s); !strings.Contains(got, "LOOPBACK,UP") || strings.Count(got, "\n") != 0 {
			t.Errorf("links:\n%s", got)
		}
	})
}

// The stage brings up the loopback interface while the init goes on. The program
// must not see the interface before that, however late it is: here the step
// comes after a rest.
func TestProgramWaitsForLoopback(t *testing.T) {
	tenth := stage.Blob(binary.LittleEndian.AppendUint64(make([]byte, 8), 1e8)) // of a second
	testutil.EachUser(t, func(t *testing.T) {
		for _, init := range []bool{true, false} {
			s := guest.Spec([]string{"ip", "-o", "link"})
			s.Init = init
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			s.Stdout = w
			p, err := nsexec.StartAltered(s, func(p *stage.Program) {
				i := slices.IndexFunc(p.Ops, func(op stage.Op) bool { return op.Step.Do == nsexec.DoLoopback && op.Call == stage.Ioctl })
				rest := p.Ops[i]
				rest.Call, rest.Args = stage.Ppoll, []stage.Arg{stage.Imm(0), stage.Imm(0), tenth, stage.Imm(0), stage.Imm(8)}
				p.Ops[i], p.Ops[i+1] = rest, p.Ops[i] // the descriptor closes by itself
			})
			if err != nil {
				t.Fatal(err)
			}
			p.Wait(t.Context())
			w.Close()
			out, _ := io.ReadAll(r)
			if got := string(out); !strings.Contains(got, "LOOPBACK,UP") {
				t.Errorf("init %v: links:\n%s", init, got)
			}
		}
	})
}
