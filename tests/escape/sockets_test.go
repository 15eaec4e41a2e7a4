//go:build linux

package escape

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/populationgenomics/postern-go"
	"github.com/populationgenomics/postern-go/hatch"
	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// socketsProbe lists the families of sockets, and the protocols of netlink,
// that can be had. AF_VSOCK leads to the hypervisor, NETLINK_NETFILTER to
// nf_tables, and each of the others to code that guests do not need.
var socketsProbe = guest.Probe("sockets", func([]string) {
	var families, pairs, protocols []string
	for family := range 64 {
		if family == unix.AF_NETLINK {
			continue
		}
		for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET, unix.SOCK_RAW} {
			if fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0); err == nil {
				families = append(families, fmt.Sprint(family))
				unix.Close(fd)
				break
			}
		}
		if fds, err := unix.Socketpair(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err == nil {
			pairs = append(pairs, fmt.Sprint(family))
			unix.Close(fds[0])
			unix.Close(fds[1])
		}
	}
	for protocol := range 32 {
		for _, family := range []uintptr{unix.AF_NETLINK, unix.AF_NETLINK | 1<<32} {
			if errnoOf(unix.SYS_SOCKET, family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, uintptr(protocol)) == nil {
				protocols = append(protocols, fmt.Sprint(protocol))
			}
		}
	}
	fmt.Println("families", strings.Join(families, " "))
	fmt.Println("pairs", strings.Join(pairs, " "))
	fmt.Println("netlink", strings.Join(protocols, " "))
	fmt.Println("vsock", outcome(errnoOf(unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM)))
	fmt.Println("vsock with high bits", outcome(errnoOf(unix.SYS_SOCKET, unix.AF_VSOCK|1<<32, unix.SOCK_STREAM)))
})

func TestSocketFamilies(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		want := []string{"families 1 2 10", "pairs 1", "netlink 0 0", "vsock EAFNOSUPPORT", "vsock with high bits EAFNOSUPPORT"}
		compare(t, "behind the wall", lines(inGuest(t, wall(t), socketsProbe, nil)), want)
		weak := lines(inGuest(t, wall(t), socketsProbe, nil, seccomp))
		if len(weak) != 5 || !slices.Contains(strings.Fields(weak[2]), "12") {
			t.Errorf("without seccomp a guest has %q, and not NETLINK_NETFILTER; this proves nothing", weak)
		}
		tint := lines(inGuest(t, wall(t), socketsProbe, nil, tinted))
		if len(tint) != 5 || tint[3] != "vsock EHWPOISON" || tint[4] != "vsock with high bits EHWPOISON" {
			t.Errorf("with a tinted filter a guest has %q; it is not the filter that denies AF_VSOCK", tint)
		}
	})
}

// The network of the host.
var netAttacks = attacks("net",
	attack{name: "loopback", do: dialArgument, blocked: []string{"ECONNREFUSED"}, layers: []layer{netNS}, alter: listening("tcp4", "127.0.0.1:0")},
	attack{name: "loopback, IPv6", do: dialArgument, blocked: []string{"ECONNREFUSED"}, layers: []layer{netNS}, alter: listening("tcp6", "[::1]:0")},
	attack{name: "all addresses", do: dialArgument, blocked: []string{"ECONNREFUSED"}, layers: []layer{netNS}, alter: listening("tcp4", "0.0.0.0:0")},
	attack{name: "abstract socket", do: dialArgument, blocked: []string{"ECONNREFUSED"}, layers: []layer{netNS}, alter: listening("unix", "")},
	attack{name: "raw socket", do: func() error {
		_, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
		return err
	}, blocked: []string{"EPERM"}, layers: []layer{caps}},
	attack{name: "configure an interface", do: func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		ifr, err := unix.NewIfreq("lo")
		if err != nil {
			return err
		}
		ifr.SetUint16(unix.IFF_UP | unix.IFF_LOOPBACK)
		return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
	}, blocked: []string{"EPERM"}, layers: []layer{caps}},
)

func TestNetworkOfTheHost(t *testing.T) { run(t, "net", netAttacks) }

// dialArgument connects to where the arguments say.
func dialArgument() error {
	conn, err := net.Dial(os.Args[1], os.Args[2])
	if err == nil {
		conn.Close()
	}
	return err
}

var abstract atomic.Int64 // numbers the abstract sockets of the host

// listening makes the host listen, and tells the guest where.
func listening(network, address string) func(*testing.T, *nsexec.Spec) {
	return func(t *testing.T, s *nsexec.Spec) {
		address := address
		if network == "unix" {
			address = fmt.Sprintf("@postern-escape-%d-%d", os.Getpid(), abstract.Add(1))
		}
		l, err := net.Listen(network, address)
		if err != nil {
			if network == "tcp6" {
				testutil.Missing(t, "this machine has no IPv6")
			}
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				conn.Close()
			}
		}()
		t.Cleanup(func() { l.Close(); <-done })
		s.Args = append(s.Args, network, l.Addr().String())
	}
}

// netProbe prints what there is of a network.
var netProbe = guest.Probe("net", func([]string) {
	ifs, err := net.Interfaces()
	for _, i := range ifs {
		fmt.Print(i.Name, " ")
	}
	fmt.Println(outcome(err))
	routes, err := os.ReadFile("/proc/net/route")
	fmt.Println("routes", len(lines(string(routes)))-1, outcome(err))
	sockets, err := os.ReadFile("/proc/net/unix")
	fmt.Println("sockets", len(lines(string(sockets)))-1, outcome(err))
	for _, a := range []string{"1.1.1.1:443", "[2606:4700:4700::1111]:443", "169.254.169.254:80"} {
		_, err := net.Dial("tcp", a)
		fmt.Println(a, outcome(err))
	}
	_, err = net.LookupHost("example.com")
	fmt.Println("name found:", err == nil)
})

// A guest has no interface but its own loopback, no route, and so nobody to
// ask for names.
func TestNoNetwork(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		want := []string{"lo got through", "routes 0 got through", "sockets 0 got through",
			"1.1.1.1:443 ENETUNREACH", "[2606:4700:4700::1111]:443 ENETUNREACH", "169.254.169.254:80 ENETUNREACH", "name found: false"}
		compare(t, "behind the wall", lines(inGuest(t, wall(t), netProbe, nil)), want)

		// The control needs a host with an interface, which no test can do without rights.
		hostIfs, err := net.Interfaces()
		if err != nil {
			t.Fatal(err)
		}
		if len(hostIfs) < 2 {
			testutil.Missing(t, "the host has no network interface itself")
		}
		s, err := wall(t).Spec([]string{"cat", "/proc/net/dev", "/proc/net/unix"})
		if err != nil {
			t.Fatal(err)
		}
		netNS.off(s)
		if got := ended(guest.Run(t, s)); !strings.Contains(got, hostIfs[1].Name+":") {
			t.Errorf("in the host's network namespace a guest sees\n%s\nand not %s; this attack proves nothing", got, hostIfs[1].Name)
		}
	})
}

// socketFiles lists sockets and other things to talk to in the whole tree.
var socketFiles = guest.Probe("socket files", func([]string) {
	filepath.WalkDir("/", func(p string, d fs.DirEntry, err error) error {
		var st unix.Stat_t // of what is mounted there, unlike d
		switch {
		case err != nil || unix.Lstat(p, &st) != nil:
			return nil
		case slices.Contains([]string{"/proc", "/usr", "/lib", "/lib64", "/bin", "/sbin"}, p):
			return fs.SkipDir // no place for sockets, and large
		case st.Mode&unix.S_IFMT == unix.S_IFSOCK || st.Mode&unix.S_IFMT == unix.S_IFIFO:
			conn, err := net.Dial("unix", p)
			if err == nil {
				conn.Close()
			}
			fmt.Println(p, outcome(err))
		}
		return nil
	})
})

// The only sockets in a guest's tree are its hatches.
func TestOnlyHatches(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		h, err := hatch.NewSocket(hatch.SocketConfig{MaxConns: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		p := wall(t)
		look := func() string {
			s, err := postern.New(p, postern.WithHatch(h))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			r, err := s.Run(t.Context(), probeArgs(socketFiles)...)
			if err != nil {
				t.Fatal(err)
			}
			if !r.OK() {
				t.Fatalf("the guest ended with %d: %s", r.ExitCode, r.Stderr)
			}
			return strings.TrimSpace(string(r.Stdout))
		}
		const want = "/run/postern/hatch.sock got through"
		if got := look(); got != want {
			t.Errorf("a guest finds %q, want %q", got, want)
		}
		// A socket in a directory that is bound in, even read-only, is an opening.
		dir := t.TempDir()
		l, err := net.Listen("unix", dir+"/s")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		p.RequiredBinds = append(p.RequiredBinds, postern.Bind{Host: dir, Guest: "/bound"})
		if got := look(); !strings.Contains(got, "/bound/s "+through) {
			t.Errorf("with a socket bound in, a guest finds %q; this attack proves nothing", got)
		}
	})
}

// probeArgs is the command line of a probe for a sandbox, whose profile cannot
// set its variable.
func probeArgs(name string, args ...string) []string {
	return append([]string{"env", guest.ProbeEnv(name), guestSelf}, args...)
}
