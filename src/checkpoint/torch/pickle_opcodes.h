// The bytes that drive a pickle reader.
#pragma once

#include <cstdint>

namespace phx::pickle_op {

// The opcodes of protocols 2 to 5. Those of protocols 0 and 1, which write numbers as text, are not
// taken: no file of today has them, and every parser of text is one more to get wrong.
enum PickleOp : uint8_t {
  kProto = 0x80,
  kFrame = 0x95,
  kStop = '.',
  kMark = '(',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kNone = 'N',
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kBinFloat = 'G',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kBinBytes8 = 0x8e,
  kByteArray8 = 0x96,
  kEmptyTuple = ')',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kTuple = 't',
  kEmptyList = ']',
  kList = 'l',
  kAppend = 'a',
  kAppends = 'e',
  kEmptyDict = '}',
  kDict = 'd',
  kSetItem = 's',
  kSetItems = 'u',
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kGlobal = 'c',
  kStackGlobal = 0x93,
  kReduce = 'R',
  kBuild = 'b',
  kNewObj = 0x81,
  kNewObjEx = 0x92,
  kBinPersId = 'Q',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kMemoize = 0x94,
  kPut = 'p',
  kGet = 'g',
  kInst = 'i',
  kObj = 'o',
  kExt1 = 0x82,
  kExt2 = 0x83,
  kExt4 = 0x84,
  kNextBuffer = 0x97,
  kReadOnlyBuffer = 0x98,
};

inline const char* why_refused(uint8_t op) {
  switch (op) {
    case kInst:
      return "INST, an old way to make objects";
    case kObj:
      return "OBJ, an old way to make objects";
    case kExt1:
    case kExt2:
    case kExt4:
      return "EXT, an object of a table that only the writer knew";
    case kNextBuffer:
    case kReadOnlyBuffer:
      return "NEXT_BUFFER, data outside of the file";
    case 'I':
    case 'L':
    case 'F':
    case 'S':
    case 'V':
    case 'P':
    case kPut:
    case kGet:
      return "an opcode of protocol 0; protocols 2 to 5 are read";
    default:
      return "which is no opcode of a pickle";
  }
}

}  // namespace phx::pickle_op
