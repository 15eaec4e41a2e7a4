package profile

import (
	"reflect"
	"testing"
	"time"

	"github.com/populationgenomics/postern-go/seccompbpf"
)

// Promise 13 among others: zero is the default, and no limit is said explicitly.
func TestOrDefault(t *testing.T) {
	for _, tt := range []struct{ timeout, want time.Duration }{{0, 60 * time.Second}, {time.Hour, time.Hour}, {Unlimited, 0}} {
		if got := OrDefault(tt.timeout, DefaultTimeout); got != tt.want {
			t.Errorf("a Timeout of %v is %v, want %v", tt.timeout, got, tt.want)
		}
	}
}

// A clone shares no field with its original that could be changed. The network
// namespace is the caller's to keep open.
func TestClone(t *testing.T) {
	p := Profile{
		Overlay: &Overlay{Lower: []string{"/layer"}}, Etc: &Etc{}, HostUID: new(uint32(1)), HostGID: new(uint32(2)),
		ReadOnlyBinds: []Bind{{Host: "/a"}}, RequiredBinds: []Bind{{Host: "/b"}}, WritableBinds: []Bind{{Host: "/c"}},
		StubFiles: []string{"/d"}, Env: []string{"E=f"}, Seccomp: new(seccompbpf.Hardened()),
	}
	c := p.Clone()
	if !reflect.DeepEqual(p, c) {
		t.Fatalf("got %+v, want %+v", c, p)
	}
	distinct := func(name string, a, b reflect.Value) {
		if a.IsNil() || a.Pointer() == b.Pointer() {
			t.Errorf("%s is nil or shared", name)
		}
	}
	before, after := reflect.ValueOf(p), reflect.ValueOf(c)
	for i := range before.NumField() {
		if k := before.Field(i).Kind(); k == reflect.Slice || k == reflect.Pointer || k == reflect.Map {
			distinct(before.Type().Field(i).Name, before.Field(i), after.Field(i))
		}
	}
	distinct("Overlay.Lower", reflect.ValueOf(p.Overlay.Lower), reflect.ValueOf(c.Overlay.Lower))
	distinct("Seccomp.Rules", reflect.ValueOf(p.Seccomp.Rules), reflect.ValueOf(c.Seccomp.Rules))
}

func TestGuestID(t *testing.T) {
	for id, want := range map[GuestID]string{{}: "65534", Nobody: "65534", NumericID(0): "0", NumericID(7): "7", CallerID: "the caller's"} {
		if got := id.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
