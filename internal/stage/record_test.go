package stage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
)

func encodeRecord(words ...uint64) (b []byte) {
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

func TestParseRecord(t *testing.T) {
	minusTwo := uint64(math.MaxUint64 - 1)
	r, err := ParseRecord(encodeRecord(uint64(ExecError), 1, minusTwo, 127, 0xffff))
	if want := (Record{ExecError, 1, -2, 127}); r != want || err != nil {
		t.Errorf("got %+v, %v, want %+v", r, err, want)
	}
	for kind := Failed; kind <= Terminal; kind++ {
		if r, err := ParseRecord(encodeRecord(uint64(kind), 0, 0, 0)); r.Kind != kind || err != nil {
			t.Errorf("kind %d: %+v, %v", kind, r, err)
		}
	}
	for name, b := range map[string][]byte{
		"nothing":      nil,
		"short":        encodeRecord(uint64(Failed), 0, 0, 0)[:RecordSize-1],
		"kind 0":       encodeRecord(0, 0, 0, 0),
		"unknown kind": encodeRecord(uint64(Terminal)+1, 0, 0, 0),
		"wide kind":    encodeRecord(1<<32+uint64(Failed), 0, 0, 0),
	} {
		if _, err := ParseRecord(b); !errors.Is(err, ErrRecord) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestFailedStep(t *testing.T) {
	p := sample("postern")
	image := linked(t, p, AMD64)
	first := int64(opsAddr(image))
	for i := range p.Ops {
		p.Ops[i].Step = Step{fmt.Sprint("do ", i), fmt.Sprint("on ", i)}
	}
	for i := range p.Ops {
		a := first + int64(i)*OpSize
		if got, ok := p.FailedStep(image, Record{Kind: Failed, A: a}); got != p.Ops[i].Step || !ok {
			t.Errorf("operation %d: got %v, %v", i, got, ok)
		}
		want := Step{"do 0", p.Ops[i].Step.On}
		if got, ok := p.FailedStep(image, Record{Kind: Failed, A: a, C: first}); got != want || !ok {
			t.Errorf("operation %d because of the first: got %v, %v", i, got, ok)
		}
	}
	for _, a := range []int64{0, -1, math.MinInt64, math.MaxInt64, first - OpSize, first + 1, first + int64(len(p.Ops))*OpSize} {
		if s, ok := p.FailedStep(image, Record{Kind: Failed, A: a}); ok {
			t.Errorf("address %#x names %v", a, s)
		}
		if s, ok := p.FailedStep(image, Record{Kind: Failed, A: first, C: a}); ok && a != 0 {
			t.Errorf("reason %#x names %v", a, s)
		}
	}
}

// FuzzParseRecord feeds the host's side what a hostile guest might write.
func FuzzParseRecord(f *testing.F) {
	p := sample("postern")
	image, err := p.link(AMD64, make([]byte, 300), nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(nil))
	f.Add(encodeRecord(uint64(Failed), opsAddr(image), math.MaxUint64, 0))
	f.Add(encodeRecord(uint64(Exited), 1<<63, 1<<63, 1<<63))
	f.Add(make([]byte, RecordSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseRecord(b)
		if s, ok := p.FailedStep(image, r); ok && !slices.ContainsFunc(p.Ops, func(op Op) bool { return op.Step.On == s.On }) {
			t.Errorf("%+v names %v", r, s)
		}
		if err != nil {
			return
		}
		again := encodeRecord(uint64(r.Kind), uint64(r.A), uint64(r.B), uint64(r.C))
		if string(again) != string(b[:RecordSize]) {
			t.Errorf("%x was read as %+v", b, r)
		}
	})
}
