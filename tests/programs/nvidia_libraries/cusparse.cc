// cusparse: a matrix in compressed rows times a vector and times a dense matrix, in f32 and f64.
#include <cusparse.h>

#include "check.h"

namespace {

constexpr int kRows = 200, kColumns = 150, kDense = 17;

struct Matrix {
  std::vector<int> first{0}, column;
  std::vector<float> value;
};

// About every seventh element. Some rows are empty.
Matrix make_matrix() {
  Matrix matrix;
  const std::vector<float> values = some_values(kRows * kColumns, 1);
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      if (row % 11 == 3 || (row * 31 + column * 17) % 7 != 0) continue;
      matrix.column.push_back(column);
      matrix.value.push_back(values[row * kColumns + column]);
    }
    matrix.first.push_back(static_cast<int>(matrix.column.size()));
  }
  return matrix;
}

template <typename T>
cusparseSpMatDescr_t describe(const DeviceArray<int>& first, const DeviceArray<int>& column,
                              const DeviceArray<T>& value, int elements, cudaDataType type) {
  cusparseSpMatDescr_t matrix = nullptr;
  MUST(cusparseCreateCsr(&matrix, kRows, kColumns, elements, first.get(), column.get(), value.get(),
                         CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, type));
  return matrix;
}

// out = 2 * matrix * dense + 3 * out, `columns` columns of both, column by column.
template <typename T>
void multiply(const char* name, cusparseHandle_t handle, cudaDataType type, int columns,
              double tolerance) {
  const Matrix matrix = make_matrix();
  const std::vector<float> dense = some_values(kColumns * columns, 2);
  const std::vector<float> before = some_values(kRows * columns, 3);
  std::vector<double> right(before.begin(), before.end());
  for (int c = 0; c < columns; ++c) {
    for (int row = 0; row < kRows; ++row) {
      double sum = 0;
      for (int i = matrix.first[row]; i < matrix.first[row + 1]; ++i) {
        sum += double{matrix.value[i]} * dense[c * kColumns + matrix.column[i]];
      }
      right[c * kRows + row] = 2 * sum + 3 * right[c * kRows + row];
    }
  }
  const DeviceArray<int> first(matrix.first), column(matrix.column);
  const DeviceArray<T> value(std::vector<T>(matrix.value.begin(), matrix.value.end()));
  const DeviceArray<T> in(std::vector<T>(dense.begin(), dense.end()));
  const DeviceArray<T> out(std::vector<T>(before.begin(), before.end()));
  const T alpha = 2, beta = 3;
  const cusparseSpMatDescr_t a =
      describe(first, column, value, static_cast<int>(matrix.value.size()), type);
  std::size_t bytes = 0;
  if (columns == 1) {
    cusparseDnVecDescr_t x = nullptr, y = nullptr;
    MUST(cusparseCreateDnVec(&x, kColumns, in.get(), type));
    MUST(cusparseCreateDnVec(&y, kRows, out.get(), type));
    MUST(cusparseSpMV_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha, a, x, &beta, y,
                                 type, CUSPARSE_SPMV_ALG_DEFAULT, &bytes));
    const DeviceArray<char> buffer(bytes + 1);
    MUST(cusparseSpMV(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha, a, x, &beta, y, type,
                      CUSPARSE_SPMV_ALG_DEFAULT, buffer.get()));
  } else {
    cusparseDnMatDescr_t b = nullptr, c = nullptr;
    MUST(cusparseCreateDnMat(&b, kColumns, columns, kColumns, in.get(), type, CUSPARSE_ORDER_COL));
    MUST(cusparseCreateDnMat(&c, kRows, columns, kRows, out.get(), type, CUSPARSE_ORDER_COL));
    MUST(cusparseSpMM_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE,
                                 CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha, a, b, &beta, c, type,
                                 CUSPARSE_SPMM_ALG_DEFAULT, &bytes));
    const DeviceArray<char> buffer(bytes + 1);
    MUST(cusparseSpMM(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_NON_TRANSPOSE,
                      &alpha, a, b, &beta, c, type, CUSPARSE_SPMM_ALG_DEFAULT, buffer.get()));
  }
  expect_close(name, out.read(), right, tolerance);
}

}  // namespace

int main() {
  cusparseHandle_t handle = nullptr;
  MUST(cusparseCreate(&handle));
  multiply<float>("SpMV f32", handle, CUDA_R_32F, 1, 1e-5);
  multiply<double>("SpMV f64", handle, CUDA_R_64F, 1, 1e-12);
  multiply<float>("SpMM f32", handle, CUDA_R_32F, kDense, 1e-5);
  multiply<double>("SpMM f64", handle, CUDA_R_64F, kDense, 1e-12);
  MUST(cusparseDestroy(handle));
  std::printf("PASSED\n");
  return 0;
}
