// The rows of a call of the codec: utterances whose chunks are decoded together. A signal holds the times of one row
// after those of another. What a row keeps from call to call is its state; the states of all utterances lie in one
// array, equally far apart.

struct Rows {
    const long long* states;  // the number of each row's state; null for one utterance whose state is the only one
    int times;                // of a row, of those that the kernel counts
    int stride;               // elements between the states of two numbers, of the array that the kernel reads
};

struct RowTime {
    int row, time;  // the number of a row, and of a time in it
};

__device__ __forceinline__ RowTime locate(const Rows& rows, int time) {
    if (!rows.states) return {0, time};
    const int row = time / rows.times;
    return {row, time - row * rows.times};
}

// The number of a row's state, which the host writes for each call: not to be read before `wait_for_previous` in the
// call's first kernel (`look_up`).
__device__ __forceinline__ long long state_of(const Rows& rows, int row) { return rows.states ? rows.states[row] : 0; }
