package audit

import (
	"encoding/json"
	"fmt"
)

// LineError is a line of a segment that is no record. Readers report it and go
// on with the next line.
type LineError struct {
	File   string
	Line   int   // from 1; 0 if not known
	Offset int64 // of the line's first byte
	Err    error
}

// Error names the file and the line.
func (e *LineError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
	}
	return fmt.Sprintf("%s: at byte %d: %v", e.File, e.Offset, e.Err)
}

// Unwrap returns Err.
func (e *LineError) Unwrap() error { return e.Err }

// DecodeLine reads one line of a segment, without its newline. Members that
// are not known are passed over: a newer gateway may have written them.
func DecodeLine(line []byte) (*Event, error) {
	if len(line) > maxLine {
		return nil, fmt.Errorf("line of %d bytes is no record", len(line))
	}
	e := &Event{}
	if err := json.Unmarshal(line, e); err != nil {
		return nil, fmt.Errorf("no record: %w", err)
	}
	if e.Schema != Schema {
		return nil, fmt.Errorf("schema %s: want %s", Escape(e.Schema, 40), Schema)
	}
	return e, nil
}

// maxLine is the longest line that readers take from a segment, in bytes. The
// log never writes one of more than maxRecord.
const maxLine = 1 << 20
