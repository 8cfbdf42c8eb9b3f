# workerd
