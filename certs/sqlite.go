package certs

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// sqlitePage is the size of a page, in bytes, and so of what a table may hold:
// a row of a certificate has about a thousand.
const sqlitePage = 32768

// sqliteTable returns an SQLite 3 database with one table, whose rows are
// numbered from 1 in the column id and have blobs, or nothing, in the others.
// It has two pages: the schema and the table's one leaf.
// See https://www.sqlite.org/fileformat2.html.
func sqliteTable(name string, columns []string, rows [][][]byte) ([]byte, error) {
	sql := "CREATE TABLE " + name + " (id INTEGER PRIMARY KEY, " + strings.Join(columns, ", ") + ")"
	schema, err := sqliteLeaf(sqliteHead(), [][]byte{sqliteCell(1, sqliteSchema(name, sql))})
	if err != nil {
		return nil, err
	}
	cells := make([][]byte, len(rows))
	for i, row := range rows {
		cells[i] = sqliteCell(i+1, sqliteRow(row))
	}
	leaf, err := sqliteLeaf(nil, cells)
	if err != nil {
		return nil, err
	}
	return append(schema, leaf...), nil
}

// sqliteHead is the first 100 bytes of the file.
func sqliteHead() []byte {
	b := make([]byte, 0, 100)
	b = append(b, "SQLite format 3\x00"...)
	b = binary.BigEndian.AppendUint16(b, sqlitePage)
	b = append(b, 1, 1, 0, 64, 32, 32) // rollback journal; nothing reserved; the fractions that must be
	for _, n := range []uint32{
		1, 2, 0, 0, // change counter, pages, no free ones
		1, 4, 0, 0, // schema cookie and format
		1, 0, 0, 0, // UTF-8
		0, 0, 0, 0, 0, 1, 3040001, // the change counter again, and a version that writes this form
	} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}

// sqliteLeaf is a page of cells, after what the first page begins with.
func sqliteLeaf(head []byte, cells [][]byte) ([]byte, error) {
	page := make([]byte, sqlitePage)
	at := copy(page, head)
	const header = 8
	pointers, end := at+header, sqlitePage
	for i, c := range cells {
		end -= len(c)
		if end < at+header+2*len(cells) {
			return nil, fmt.Errorf("%d rows are more than a page holds", len(cells))
		}
		copy(page[end:], c)
		binary.BigEndian.PutUint16(page[pointers+2*i:], uint16(end))
	}
	page[at] = 13 // a leaf of a table
	binary.BigEndian.PutUint16(page[at+3:], uint16(len(cells)))
	binary.BigEndian.PutUint16(page[at+5:], uint16(end))
	return page, nil
}

// sqliteCell is a row with its number.
func sqliteCell(id int, record []byte) []byte {
	b := sqliteNumber(nil, uint64(len(record)))
	return append(sqliteNumber(b, uint64(id)), record...)
}

// sqliteSchema is the row of the schema for a table whose root is page 2.
func sqliteSchema(name, sql string) []byte {
	text := func(s string) uint64 { return uint64(2*len(s) + 13) }
	const oneByte = 1
	return sqliteRecord([]uint64{text("table"), text(name), text(name), oneByte, text(sql)},
		"table"+name+name+"\x02"+sql)
}

// sqliteRow is a row: the number, which stands outside of it, then blobs.
func sqliteRow(values [][]byte) []byte {
	kinds := []uint64{0}
	var body strings.Builder
	for _, v := range values {
		if v == nil {
			kinds = append(kinds, 0)
			continue
		}
		kinds = append(kinds, uint64(2*len(v)+12))
		body.Write(v)
	}
	return sqliteRecord(kinds, body.String())
}

// sqliteRecord has the kinds of its values before them, and before those how
// many bytes they and the count itself take.
func sqliteRecord(kinds []uint64, body string) []byte {
	var list []byte
	for _, k := range kinds {
		list = sqliteNumber(list, k)
	}
	size := len(list) + 1
	if size > 0x7f {
		size++ // a record's head stays below 16 KiB
	}
	return append(append(sqliteNumber(nil, uint64(size)), list...), body...)
}

// sqliteNumber appends a number, seven bits a byte, the highest first.
func sqliteNumber(b []byte, n uint64) []byte {
	digits := []byte{byte(n & 0x7f)}
	for n >>= 7; n > 0; n >>= 7 {
		digits = append(digits, byte(n&0x7f)|0x80)
	}
	for i := len(digits) - 1; i >= 0; i-- {
		b = append(b, digits[i])
	}
	return b
}
