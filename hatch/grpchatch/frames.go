package grpchatch

import (
	"encoding/binary"
	"errors"
	"log/slog"

	"golang.org/x/net/http2"

	"github.com/populationgenomics/postern-go/hatch"
)

// The gRPC server keeps every DATA frame in a buffer of its own until its
// message is complete. Sent in frames of one byte, a message costs it dozens of
// times the memory that the limit on message sizes suggests. gRPC clients cut
// messages into frames of 16 KiB, or where a flow control window ends; so a
// client which keeps on sending much smaller ones is up to something, and loses
// its connection.
const (
	freeCuts    = 64   // how often the messages of a stream may be cut, and
	bytesPerCut = 1024 // how many bytes of it allow for one more
)

var errTinyFrames = errors.New("grpchatch: the client cuts messages into tiny frames")

// policedConn is a connection that ends with errTinyFrames.
type policedConn struct {
	*hatch.Conn
	log    *slog.Logger
	frames framePolice
}

func (c *policedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if frameErr := c.frames.inspect(p[:n]); frameErr != nil {
		c.log.Debug("connection cut", "error", frameErr)
		return 0, frameErr
	}
	return n, err
}

const (
	frameHeaderLen   = 9
	messagePrefixLen = 5 // a flag and the length

	// Streams that ended without the client saying so are forgotten when
	// there are this many newer ones. Stream numbers are odd and go up.
	maxStreams = 4096
)

// framePolice follows the frames of one connection, from client to server.
// What does not begin as HTTP/2 it lets pass. The server refuses it, or it is
// TLS, by the caller's grpc.Creds.
type framePolice struct {
	preface int // bytes of it seen
	foreign bool

	header [frameHeaderLen]byte
	have   int // bytes of the header

	skip    int // bytes of the current frame to come, but for
	data    int // those that are data
	padded  bool
	ends    bool
	id      uint32
	streams map[uint32]*messageStream
}

// messageStream follows the messages of one stream.
type messageStream struct {
	prefix    [messagePrefixLen]byte
	have      int    // bytes of the prefix
	remaining uint32 // bytes of the message after the prefix
	bytes     int    // of all its messages
	cuts      int    // frames that began inside a message
}

func (p *framePolice) inspect(b []byte) error {
	for len(b) > 0 {
		switch {
		case p.foreign:
			return nil
		case p.preface < len(http2.ClientPreface):
			p.foreign = b[0] != http2.ClientPreface[p.preface]
			b = b[1:]
			p.preface++
		case p.data > 0 && p.padded:
			// The first byte of the payload is the length of the padding at
			// its end.
			p.padded = false
			padding := int(b[0])
			b = b[1:]
			p.data--
			if padding > p.data {
				padding = p.data // an error, for the server to find
			}
			p.data -= padding
			p.skip = padding
			if err := p.begin(); err != nil {
				return err
			}
		case p.data > 0:
			n := min(len(b), p.data)
			if s := p.streams[p.id]; s != nil {
				s.follow(b[:n])
			}
			b = b[n:]
			p.data -= n
			if p.data == 0 && p.ends {
				delete(p.streams, p.id)
			}
		case p.skip > 0:
			n := min(len(b), p.skip)
			b = b[n:]
			p.skip -= n
		default:
			n := copy(p.header[p.have:], b)
			b = b[n:]
			p.have += n
			if p.have == frameHeaderLen {
				p.have = 0
				if err := p.frame(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// frame takes in a frame header.
func (p *framePolice) frame() error {
	length := int(p.header[0])<<16 | int(p.header[1])<<8 | int(p.header[2])
	flags := http2.Flags(p.header[4])
	p.id = binary.BigEndian.Uint32(p.header[5:]) &^ (1 << 31)
	switch http2.FrameType(p.header[3]) {
	case http2.FrameData:
		p.data = length
		p.padded = flags.Has(http2.FlagDataPadded)
		p.ends = flags.Has(http2.FlagDataEndStream)
		if !p.padded || length == 0 {
			return p.begin()
		}
	case http2.FrameRSTStream:
		p.skip = length
		delete(p.streams, p.id)
	default:
		p.skip = length
	}
	return nil
}

// begin takes in the beginning of the data in a DATA frame.
func (p *framePolice) begin() error {
	if p.data == 0 {
		if p.ends {
			delete(p.streams, p.id)
		}
		return nil
	}
	s := p.streams[p.id]
	if s == nil {
		if p.ends {
			return nil // nothing comes after it
		}
		if p.streams == nil {
			p.streams = make(map[uint32]*messageStream)
		}
		if len(p.streams) >= maxStreams {
			p.forget()
		}
		s = new(messageStream)
		p.streams[p.id] = s
	}
	if s.have > 0 || s.remaining > 0 {
		s.cuts++
		if s.cuts > freeCuts+s.bytes/bytesPerCut {
			return errTinyFrames
		}
	}
	return nil
}

// forget drops the older half, or all if the client does not count as it must.
func (p *framePolice) forget() {
	for id := range p.streams {
		if id+maxStreams < p.id || id > p.id {
			delete(p.streams, id)
		}
	}
	if len(p.streams) >= maxStreams {
		clear(p.streams)
	}
}

// follow takes in data of the stream.
func (s *messageStream) follow(b []byte) {
	s.bytes += len(b)
	for len(b) > 0 {
		if s.remaining > 0 {
			n := min(uint64(len(b)), uint64(s.remaining))
			b = b[n:]
			s.remaining -= uint32(n)
			continue
		}
		n := copy(s.prefix[s.have:], b)
		b = b[n:]
		s.have += n
		if s.have == messagePrefixLen {
			s.have = 0
			s.remaining = binary.BigEndian.Uint32(s.prefix[1:])
		}
	}
}
