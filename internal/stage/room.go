package stage

import "sync"

// A Room is memory in which programs of the usual size are built and linked,
// one after the other: memory that is new to the process costs a launch more
// than what it does with it.
type Room struct {
	ops   []Op
	args  []Arg
	image []byte
	strs  map[string]uint64
	blobs map[Blob]uint64
}

// A launch has up to 600 operations with 1500 operands, and 15 KiB of constants.
const (
	typicalOps  = 768
	typicalArgs = 2304
	poolGuess   = 24 << 10
	typicalStrs = 224 // a map of 256 is full
)

var rooms = sync.Pool{New: func() any {
	return &Room{
		make([]Op, 0, typicalOps), make([]Arg, 0, typicalArgs), make([]byte, 0, typicalOps*OpSize+poolGuess),
		make(map[string]uint64, typicalStrs), map[Blob]uint64{},
	}
}}

// NewRoom returns a room of the caller's own.
func NewRoom() *Room { return rooms.Get().(*Room) }

// Builder returns a builder for the one program the room is for.
func (r *Room) Builder() *Builder { return &Builder{ops: r.ops, args: r.args} }

// Image is [Program.Image] and may be called once.
func (r *Room) Image(p *Program) ([]byte, error) { return p.image(r) }

// Release leaves the room to others. The program and the image in it must not be
// used any more.
func (r *Room) Release() {
	clear(r.ops[:cap(r.ops)]) // nothing stays reachable from here
	clear(r.args[:cap(r.args)])
	clear(r.strs)
	clear(r.blobs)
	rooms.Put(r)
}
