package grpchatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"golang.org/x/net/http2"
)

// wire is what a client sends.
type wire struct {
	bytes.Buffer
	*http2.Framer
}

func newWire() *wire {
	w := new(wire)
	w.Framer = http2.NewFramer(&w.Buffer, nil)
	w.Buffer.WriteString(http2.ClientPreface)
	w.WriteSettings()
	return w
}

func message(size int) []byte {
	b := make([]byte, messagePrefixLen+size)
	binary.BigEndian.PutUint32(b[1:], uint32(size))
	return b
}

// send sends data in frames of a size.
func (w *wire) send(stream uint32, data []byte, frame int) {
	for len(data) > 0 {
		n := min(frame, len(data))
		w.WriteData(stream, false, data[:n])
		data = data[n:]
	}
}

// police inspects what was sent, in reads of several sizes, which must agree.
func (w *wire) police(t *testing.T) (*framePolice, error) {
	t.Helper()
	in := func(size func() int) (*framePolice, error) {
		p := new(framePolice)
		for b := w.Bytes(); len(b) > 0; {
			n := min(size(), len(b))
			if err := p.inspect(b[:n]); err != nil {
				return p, err
			}
			b = b[n:]
		}
		return p, nil
	}
	whole, want := in(func() int { return w.Len() })
	_, byByte := in(func() int { return 1 })
	_, random := in(func() int { return 1 + rand.IntN(40) })
	if byByte != want || random != want {
		t.Errorf("in one read: %v; byte by byte: %v; in random reads: %v", want, byByte, random)
	}
	return whole, want
}

func TestPoliceLetsPassWhatClientsSend(t *testing.T) {
	for name, send := range map[string]func(w *wire){
		"large messages in large frames": func(w *wire) {
			for range 4 {
				w.send(1, message(1<<20), 16<<10)
			}
		},
		"small messages, each in a frame": func(w *wire) {
			for range 100_000 {
				w.send(1, message(0), 100)
				w.send(3, message(3), 100)
			}
		},
		"many messages in a frame": func(w *wire) {
			w.send(1, bytes.Repeat(message(3), 100_000), 16<<10)
		},
		"frames that end with the flow control window": func(w *wire) {
			all := bytes.Repeat(message(100<<10), 20)
			for len(all) > 0 {
				n := min(len(all), 65535)
				w.send(1, all[:n], 16<<10)
				all = all[n:]
			}
		},
		"one message per stream, its end in a frame of its own": func(w *wire) {
			for i := range uint32(50_000) {
				w.send(1+2*i, message(10), 5)
				w.WriteData(1+2*i, true, nil)
			}
		},
		"padding": func(w *wire) {
			for range 10_000 {
				w.WriteDataPadded(1, false, message(2), make([]byte, 200))
			}
		},
		"something else": func(w *wire) {
			w.Reset()
			w.WriteString("PRI * HTTP/1.1\r\n\r\n")
			w.send(1, message(10_000), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire()
			send(w)
			if _, err := w.police(t); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPoliceStopsTinyFrames(t *testing.T) {
	for name, send := range map[string]func(w *wire){
		"a large message": func(w *wire) { w.send(1, message(4<<20), 1) },
		"of some size":    func(w *wire) { w.send(1, message(4<<20), 500) },
		"a cut prefix":    func(w *wire) { w.send(1, bytes.Repeat(message(0), 1000), 1) },
		"interleaved":     func(w *wire) { interleave(w, 2000) },
		"padding to look big": func(w *wire) {
			w.send(1, message(1 << 20)[:messagePrefixLen], 100)
			for range 1000 {
				w.WriteDataPadded(1, false, []byte{0}, make([]byte, 255))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire()
			send(w)
			if _, err := w.police(t); !errors.Is(err, errTinyFrames) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func interleave(w *wire, frames int) {
	const streams = 8
	for i := range uint32(streams) {
		w.send(1+2*i, message(1 << 20)[:messagePrefixLen], 100)
	}
	for range frames {
		for i := range uint32(streams) {
			w.WriteData(1+2*i, false, []byte{0})
		}
	}
}

func TestPoliceForgetsStreams(t *testing.T) {
	for name, end := range map[string]func(w *wire, stream uint32){
		"ended":         func(w *wire, stream uint32) { w.WriteData(stream, true, nil) },
		"ended, padded": func(w *wire, stream uint32) { w.WriteDataPadded(stream, true, nil, make([]byte, 9)) },
		"ended by data": func(w *wire, stream uint32) { w.WriteData(stream, true, []byte{1}) },
		"reset":         func(w *wire, stream uint32) { w.WriteRSTStream(stream, http2.ErrCodeCancel) },
	} {
		w := newWire()
		for i := range uint32(1000) {
			w.send(1+2*i, message(10)[:8], 100)
			end(w, 1+2*i)
		}
		p, err := w.police(t)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(p.streams); n != 0 {
			t.Errorf("%s: %d streams remembered", name, n)
		}
	}

	left := newWire()
	for i := range uint32(3 * maxStreams) {
		left.send(1+2*i, message(10)[:8], 100)
	}
	if p, _ := left.police(t); len(p.streams) > maxStreams {
		t.Errorf("%d streams remembered", len(p.streams))
	}
	backwards := newWire()
	for i := range uint32(3 * maxStreams) {
		backwards.send(1+2*(3*maxStreams-i), message(10)[:8], 100)
	}
	if p, _ := backwards.police(t); len(p.streams) > maxStreams {
		t.Errorf("%d streams remembered", len(p.streams))
	}
}

func FuzzPolice(f *testing.F) {
	w := newWire()
	w.send(1, message(300), 7)
	f.Add(w.Bytes())
	f.Fuzz(func(t *testing.T, in []byte) {
		w := new(wire)
		io.WriteString(&w.Buffer, http2.ClientPreface)
		w.Write(in)
		w.police(t)
	})
}
