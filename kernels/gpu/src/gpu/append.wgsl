// New positions of a cache, as words of one element or two: one thread per word of the result or, in place, per word that
// may hold something new.
//
// Declared by cache.rs: starts, y, bounded(halves), fresh_bits(index), old_bits(index); PER_WORD (elements of a word),
// IN_PLACE (1 if the cache lies in y); parameters.count (threads), .elements (of the result), .lists (of a row of the
// batch), .run (elements of a position), .own, .added and .made (positions of the cache, of what is new, and of the
// result), .span (threads of a list, in place).

// Position at which a list's new ones begin.
fn start_of(list: u32) -> u32 {
    return u32(clamp(bounded(starts[list / parameters.lists]), 0, i32(parameters.made - parameters.added)));
}

fn is_new(position: u32, start: u32) -> bool {
    return position >= start && position - start < parameters.added;
}

// Bits of an element of the result.
fn made_bits(index: u32) -> u32 {
    let feature = index % parameters.run;
    let position = index / parameters.run % parameters.made;
    let list = index / parameters.run / parameters.made;
    let start = start_of(list);
    if is_new(position, start) {
        return fresh_bits((list * parameters.added + position - start) * parameters.run + feature);
    }
    if position < parameters.own {
        return old_bits((list * parameters.own + position) * parameters.run + feature);
    }
    return 0u;
}

fn write_word(word: u32) {
    var bits = made_bits(word * PER_WORD);
    if PER_WORD == 2u && word * 2u + 1u < parameters.elements {
        bits = bits | (made_bits(word * 2u + 1u) << 16u);
    }
    y[word] = bits;
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let index = (group.y * groups.x + group.x) * 256u + thread;
    if index >= parameters.count {
        return;
    }
    if IN_PLACE == 0u {
        write_word(index);
        return;
    }
    let list = index / parameters.span;
    let first = (list * parameters.made + start_of(list)) * parameters.run;
    let word = first / PER_WORD + index % parameters.span;
    if word > (first + parameters.added * parameters.run - 1u) / PER_WORD {
        return;
    }
    // The list before may end in this word, with something new: one thread alone writes it.
    let begin = word * PER_WORD;
    if begin < first {
        let before = begin / parameters.run / parameters.made;
        if before < list && is_new(begin / parameters.run % parameters.made, start_of(before)) {
            return;
        }
    }
    write_word(word);
}
